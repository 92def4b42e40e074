// Memory over time: a stacked chart that zooms, pans, and shows what was held at a moment.
const MOST = 8;  // groups with a colour of their own
const chart = recording ? newChart() : null;
function newChart() {
  byId("history").hidden = false;
  const canvas = byId("plot"), pen = canvas.getContext("2d"), tip = byId("tip"), marker = byId("select");
  const left = 76, right = 16, top = 14, bottom = 28;
  const first = recording.times[0], last = Math.max(recording.times[recording.times.length - 1], first + 1e-6);
  let from = first, to = last, groups = [], hidden = new Set(), cursor = null, chosen = null, dragFrom = null, columns = [];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function regroup(by) {
    const names = recording.sites.map(BY[by]), now = new Map(), most = new Map();
    for (const event of recording.events) {
      const thing = event >= 0 ? event : ~event, name = names[recording.siteOf[thing]];
      const value = (now.get(name) || 0) + (event >= 0 ? recording.nbytes[thing] : -recording.nbytes[thing]);
      now.set(name, value);
      if (value > (most.get(name) || 0) || !most.has(name)) most.set(name, Math.max(value, most.get(name) || 0));
    }
    const ranked = [...most.entries()].filter((each) => each[1] > 0).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const own = ranked.slice(0, MOST), rest = ranked.length > MOST;
    const number = new Map(own.map((each, at) => [each[0], at]));
    groups = own.map(([name, value], at) => ({ name: label(by, name), most: value, colour: `--c${at}`, values: null }));
    if (rest) groups.push({ name: `${count(ranked.length - MOST)} others`, most: 0, colour: "--other", values: null });
    const running = new Float64Array(groups.length);
    for (const group of groups) group.values = new Float64Array(recording.events.length);
    recording.events.forEach((event, at) => {
      const thing = event >= 0 ? event : ~event, name = names[recording.siteOf[thing]];
      const place = number.has(name) ? number.get(name) : groups.length - 1;
      if (groups.length) running[place] += event >= 0 ? recording.nbytes[thing] : -recording.nbytes[thing];
      groups.forEach((group, each) => { group.values[at] = running[each]; });
    });
    hidden = new Set();
    legend();
    draw();
  }
  function label(by, name) {
    if (by === "line" || by === "stack") {
      const [kind, where] = name.split("\n");
      return where ? `${kind}: ${short(where)}` : `${kind}: not recorded`;
    }
    return name || "(none)";
  }
  function legend() {
    const box = byId("legend");
    box.replaceChildren(...groups.map((group, at) => {
      const button = make("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!hidden.has(at)));
      button.title = `${group.name}: at most ${bytes(group.most)}`;
      const dot = make("i", undefined, "dot");
      dot.style.background = `var(${group.colour})`;
      button.append(dot, make("span", group.name));
      button.addEventListener("click", () => {
        if (hidden.has(at)) hidden.delete(at); else hidden.add(at);
        legend();
        draw();
      });
      return button;
    }));
  }
  const shown = () => groups.map((group, at) => at).filter((at) => !hidden.has(at));
  function eventAt(time) {          // the last event at or before a moment, -1 for none
    let low = 0, high = recording.times.length;
    while (low < high) { const middle = (low + high) >> 1; if (recording.times[middle] <= time) low = middle + 1; else high = middle; }
    return low - 1;
  }
  function totalAt(event, list) { let found = 0; for (const at of list) found += groups[at].values[event]; return found; }
  function niceStep(span, steps, base) {
    const raw = span / steps;
    if (base === 2) return Math.pow(2, Math.ceil(Math.log2(Math.max(raw, 1))));
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  }
  let scale = { width: 1, height: 1, most: 1 };
  const xOf = (time) => left + (time - from) / (to - from) * scale.width;
  const timeOf = (x) => Math.min(to, Math.max(from, from + (x - left) / scale.width * (to - from)));

  function draw() {
    const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
    if (!box.width) return;
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const width = box.width - left - right, height = box.height - top - bottom, list = shown();
    // For each column of pixels the event at which most was held, so that no peak falls between two columns.
    columns = [];
    let most = 0, event = eventAt(from);
    for (let x = 0; x < width; x++) {
      const end = from + (x + 1) / width * (to - from);
      let best = event, value = event >= 0 ? totalAt(event, list) : 0;
      while (event + 1 < recording.times.length && recording.times[event + 1] <= end) {
        event++;
        const other = totalAt(event, list);
        if (best < 0 || other > value) { best = event; value = other; }
      }
      columns.push(best);
      most = Math.max(most, value);
    }
    scale = { width, height, most: Math.max(most, 1) * 1.06 };
    pen.clearRect(0, 0, box.width, box.height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const step = niceStep(scale.most, 5, 2);
    pen.textAlign = "right";
    for (let value = 0; value <= scale.most; value += step) {
      const y = Math.round(top + height - value / scale.most * height) + .5;
      pen.strokeStyle = colour("--line");
      pen.beginPath(); pen.moveTo(left, y); pen.lineTo(left + width, y); pen.stroke();
      pen.fillStyle = colour("--dim");
      pen.fillText(value ? bytes(value) : "0", left - 8, y);
    }
    pen.textAlign = "center";
    const tick = niceStep(to - from, Math.max(2, Math.floor(width / 110)), 10);
    for (let value = Math.ceil(from / tick) * tick; value <= to + tick * 1e-6; value += tick) {
      pen.fillStyle = colour("--dim");
      pen.fillText(Math.abs(value) < tick / 1e3 ? "0" : seconds(value), xOf(value), top + height + 14);
    }
    const fills = list.map((at) => colour(groups[at].colour));
    columns.forEach((at, x) => {
      if (at < 0) return;
      let base = 0;
      list.forEach((group, place) => {
        const value = groups[group].values[at];
        if (value <= 0) return;
        const y1 = top + height - base / scale.most * height, y0 = top + height - (base + value) / scale.most * height;
        pen.fillStyle = fills[place];
        pen.fillRect(left + x, y0, 1.5, Math.max(y1 - y0, .5));
        base += value;
      });
    });
    const peak = recording.times[recording.peak];
    if (peak >= from && peak <= to && !hidden.size) {
      const x = xOf(peak), y = top + height - recording.held[recording.peak] / scale.most * height;
      pen.fillStyle = colour("--text");
      pen.beginPath(); pen.moveTo(x, y - 2); pen.lineTo(x - 5, y - 10); pen.lineTo(x + 5, y - 10); pen.fill();
    }
    for (const [moment, dashes] of [[chosen, []], [cursor, [4, 3]]]) {
      if (moment === null || moment < from || moment > to) continue;
      pen.setLineDash(dashes);
      pen.strokeStyle = colour("--text");
      pen.beginPath(); pen.moveTo(xOf(moment), top); pen.lineTo(xOf(moment), top + height); pen.stroke();
      pen.setLineDash([]);
    }
    canvas.setAttribute("aria-label", `Memory over time, stacked, from ${seconds(from)} to ${seconds(to)}; at most ` +
      `${bytes(recording.held[recording.peak])} at ${seconds(peak)}. Arrow keys move, Enter shows the moment in the table.`);
  }
  function point(time) {
    cursor = time;
    const x = time === null ? -1 : Math.floor(xOf(time) - left);
    const event = time === null ? -1 : (columns[Math.min(Math.max(x, 0), columns.length - 1)] ?? -1);
    draw();
    if (event < 0) { tip.hidden = true; return; }
    const list = shown().filter((at) => groups[at].values[event] > 0).reverse();
    const head = make("div", undefined, "head");
    head.append(make("span", seconds(recording.times[event])), make("em", bytes(totalAt(event, shown()))));
    tip.replaceChildren(head, ...list.map((at) => {
      const row = make("div"), dot = make("i", undefined, "dot");
      dot.style.background = `var(${groups[at].colour})`;
      row.append(dot, make("span", groups[at].name), make("em", bytes(groups[at].values[event])));
      return row;
    }));
    tip.hidden = false;
    tip.style.left = "0";  // where it may be as wide as it likes
    const place = xOf(time), room = canvas.clientWidth;
    tip.style.left = place + 14 + tip.offsetWidth > room ? `${Math.max(4, place - 14 - tip.offsetWidth)}px` : `${place + 14}px`;
    tip.style.top = "18px";
  }
  function zoom(factor, around) {
    const span = Math.min(last - first, Math.max((to - from) * factor, (last - first) / 1e6, 1e-9));
    const share = (around - from) / (to - from);
    from = Math.min(Math.max(first, around - share * span), last - span);
    to = from + span;
    point(cursor);
  }
  function pan(share) {
    const span = to - from;
    from = Math.min(Math.max(first, from + share * span), last - span);
    to = from + span;
  }
  const middle = () => cursor === null ? (from + to) / 2 : cursor;
  function choose(time) {
    chosen = time;
    const event = Math.max(0, eventAt(time));
    showMoment({ name: `at ${seconds(recording.times[event])}`, rows: () => aliveAfter(event) });
    draw();
  }
  function all() { from = first; to = last; draw(); }
  function toPeak() {
    chosen = recording.times[recording.peak];
    if (chosen < from || chosen > to) all();
    showMoment(moments.find((each) => each.name === "at the peak"));
    draw();
  }
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : .8, timeOf(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { dragFrom = event.offsetX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    point(timeOf(event.offsetX));
    if (dragFrom !== null && Math.abs(event.offsetX - dragFrom) > 4) {
      marker.hidden = false;
      marker.style.left = `${Math.min(dragFrom, event.offsetX)}px`;
      marker.style.width = `${Math.abs(event.offsetX - dragFrom)}px`;
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const start = dragFrom;
    dragFrom = null;
    marker.hidden = true;
    if (start === null) return;
    const times = [timeOf(start), timeOf(event.offsetX)].sort((a, b) => a - b);
    if (Math.abs(event.offsetX - start) > 4 && times[1] > times[0]) { [from, to] = times; draw(); } else choose(timeOf(event.offsetX));
  });
  canvas.addEventListener("pointerleave", () => { if (dragFrom === null) point(null); });
  canvas.addEventListener("dblclick", all);
  canvas.addEventListener("keydown", (event) => {
    const step = (to - from) / 60;
    const acts = {
      ArrowLeft: () => move(-step), ArrowRight: () => move(step), Home: () => point(from), End: () => point(to),
      PageUp: () => { pan(-.5); point(cursor); }, PageDown: () => { pan(.5); point(cursor); },
      Enter: () => choose(middle()), Escape: () => point(null),
    };
    function move(by) {
      const next = Math.min(last, Math.max(first, middle() + by));
      if (next < from || next > to) pan(by > 0 ? .3 : -.3);
      point(Math.min(to, Math.max(from, next)));
    }
    if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
  });
  byId("zoom-in").addEventListener("click", () => zoom(.5, middle()));
  byId("zoom-out").addEventListener("click", () => zoom(2, middle()));
  byId("zoom-all").addEventListener("click", all);
  byId("to-peak").addEventListener("click", () => toPeak());
  const pick = byId("chart-by");
  for (const name of ["kind", "line", "stack", "device", "scope", "label", "thread"]) pick.append(make("option", name));
  pick.addEventListener("change", () => regroup(pick.value));
  new ResizeObserver(() => point(cursor)).observe(canvas);
  return { draw, regroup, zoom, all, toPeak, middle, pick, clear: () => { chosen = null; draw(); } };
}
