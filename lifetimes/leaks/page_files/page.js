"use strict";
// Reads the JSON document above and shows it.  Nothing is loaded, nothing is sent; text goes into the page as text only.
(() => {
  const byId = (name) => document.getElementById(name);
  const doc = JSON.parse(byId("document").textContent);
  const MOST = 8;          // groups with a colour of their own
  const PAGE = 200;        // rows of the table at once

  // ---- words and numbers ----------------------------------------------------------------------------------------
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  function bytes(number) {
    let at = 0, value = Math.abs(number);
    while (value >= 1024 && at < UNITS.length - 1) { value /= 1024; at++; }
    const digits = at === 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
    return (number < 0 ? "-" : "") + value.toFixed(digits).replace(/\.0+$|(\.\d*?)0+$/, "$1") + " " + UNITS[at];
  }
  function seconds(value) {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    if (size < 1e-3) return (value * 1e6).toFixed(0) + " \u00b5s";
    if (size < 1) return (value * 1e3).toPrecision(3) + " ms";
    if (size < 120) return value.toPrecision(3) + " s";
    if (size < 7200) return (value / 60).toFixed(1) + " min";
    return (value / 3600).toFixed(1) + " h";
  }
  const count = (number) => number.toLocaleString("en");
  function make(name, text, className) {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  }
  // Files without the folders that all of them share.
  let folder = null;
  function learn(site) {
    const file = site.replace(/:\d+ in [^\n]*$/, "");
    if (!/^([A-Za-z]:)?[\\/]/.test(file)) return;
    const at = Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\"));
    const here = file.slice(0, at + 1);
    if (folder === null) folder = here;
    while (!here.startsWith(folder)) folder = folder.slice(0, Math.max(folder.lastIndexOf("/", folder.length - 2), folder.lastIndexOf("\\", folder.length - 2)) + 1);
  }
  const short = (text) => folder && folder.length > 1 ? text.split(folder).join("") : text;

  // ---- what the document says ------------------------------------------------------------------------------------
  const leaked = doc.leaked === null ? null : new Set(doc.leaked);
  const reasons = new Map(doc.reasons.map((each) => [each.key, each]));

  function things(snapshot, flag) {
    if (!snapshot) return [];
    return snapshot.keys.map((key, at) => ({
      key, kind: snapshot.kinds[at], label: snapshot.labels[at] || "", nbytes: snapshot.nbytes[at],
      device: snapshot.devices[at] || "", scope: snapshot.scopes[at] || "", thread: snapshot.threads[at] || "",
      age: snapshot.ages[at], pins: snapshot.pins[at], pending: snapshot.pending[at], exports: snapshot.exports[at],
      stack: snapshot.stack[at] >= 0 ? snapshot.stacks[snapshot.stack[at]] : [],
      leaked: flag || (leaked !== null && leaked.has(key)), collected: flag, reason: reasons.get(key) || null,
    }));
  }
  const alive = things(doc.snapshot, false);
  const collected = things(doc.collected, true);
  for (const each of alive.concat(collected)) each.stack.forEach(learn);

  function unpack(recording) {
    const sites = [];
    const columns = recording.sites;
    for (let at = 0; at < columns.kind.length; at++) {
      const text = (name) => recording.texts[columns[name][at]] || "";
      sites.push({ kind: text("kind"), label: text("label"), device: text("device"), scope: text("scope"), thread: text("thread"),
                   nbytes: columns.nbytes[at], stack: recording.stacks[columns.stack[at]] });
    }
    for (const stack of recording.stacks) stack.forEach(learn);
    const total = recording.events.length;
    const times = new Float64Array(total), bytesAfter = new Float64Array(total);
    const nbytes = Float64Array.from(recording.site_of, (number) => sites[number].nbytes);
    let time = 0, held = 0, peak = 0;
    const madeAt = new Float64Array(recording.keys.length), goneAt = new Float64Array(recording.keys.length).fill(Infinity);
    for (let at = 0; at < total; at++) {
      time += recording.times[at];
      times[at] = time / 1e6;
      const event = recording.events[at], thing = event >= 0 ? event : ~event;
      held += event >= 0 ? nbytes[thing] : -nbytes[thing];
      if (event >= 0) madeAt[thing] = times[at]; else goneAt[thing] = times[at];
      bytesAfter[at] = held;
      if (held > bytesAfter[peak]) peak = at;
    }
    let key = 0;
    const keys = recording.keys.map((step) => (key += step));
    return { sites, times, nbytes, held: bytesAfter, peak, madeAt, goneAt, keys, events: recording.events, siteOf: recording.site_of, lost: recording.lost };
  }
  const recording = doc.recording && doc.recording.events.length ? unpack(doc.recording) : null;

  function aliveAfter(event) {
    const found = new Set();
    for (let at = 0; at <= event; at++) {
      const each = recording.events[at];
      if (each >= 0) found.add(each); else found.delete(~each);
    }
    const now = recording.times[event];
    return Array.from(found, (thing) => {
      const site = recording.sites[recording.siteOf[thing]], key = recording.keys[thing];
      return { key, ...site, age: now - recording.madeAt[thing], pins: 0, pending: 0, exports: 0, collected: false,
               leaked: leaked !== null && leaked.has(key), reason: reasons.get(key) || null };
    });
  }

  const line = (thing) => thing.stack.length ? thing.stack[0] : "";
  const BY = {
    line: (thing) => thing.kind + "\n" + line(thing),
    stack: (thing) => thing.kind + "\n" + thing.stack.join("\n"),
    kind: (thing) => thing.kind,
    label: (thing) => thing.label,
    device: (thing) => thing.device,
    scope: (thing) => thing.scope,
    thread: (thing) => thing.thread,
    thing: (thing) => String(thing.key),
  };

  // ---- tiles -----------------------------------------------------------------------------------------------------
  function tile(words, value, small, alarm) {
    const node = make("div", undefined, alarm ? "tile alarm" : "tile");
    node.append(make("span", words), make("b", value));
    if (small) node.append(make("small", small));
    byId("tiles").append(node);
  }
  const sum = (list) => list.reduce((total, each) => total + each.nbytes, 0);
  const created = new Date(doc.created * 1000);
  byId("about").textContent = `${doc.title}, ${created.toISOString().replace("T", " ").slice(0, 19)} UTC`;
  if (leaked !== null) {
    const bad = alive.filter((each) => each.leaked);
    tile("leaked", count(bad.length), bytes(sum(bad)), bad.length > 0);
  }
  tile("alive", count(alive.length), bytes(sum(alive)));
  if (collected.length) tile("only the collector freed", count(collected.length), bytes(sum(collected)));
  if (recording) {
    tile("peak", bytes(recording.held[recording.peak]), "after " + seconds(recording.times[recording.peak]));
    const lives = [];
    for (let at = 0; at < recording.keys.length; at++) if (recording.goneAt[at] < Infinity) lives.push(recording.goneAt[at] - recording.madeAt[at]);
    lives.sort((a, b) => a - b);
    tile("made", count(recording.keys.length), `${count(lives.length)} released`);
    if (lives.length) tile("median life", seconds(lives[lives.length >> 1]), "longest " + seconds(lives[lives.length - 1]));
    if (recording.lost) tile("events not recorded", count(recording.lost), "the history was full", true);
  }
  const held = alive.reduce((found, each) => [found[0] + each.pins, found[1] + each.pending, found[2] + each.exports], [0, 0, 0]);
  tile("pins, pending, exports", held.map(count).join(", "), "of what is alive");
  const oldest = Math.max(...alive.map((each) => each.age === null ? -1 : each.age), -1);
  if (oldest >= 0) tile("oldest", seconds(oldest));

  // ---- the chart -------------------------------------------------------------------------------------------------
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
    new ResizeObserver(draw).observe(canvas);
    return { draw, regroup, zoom, all, toPeak, middle, pick, clear: () => { chosen = null; draw(); } };
  }

  // ---- the table -------------------------------------------------------------------------------------------------
  const moments = [{ name: "alive now", rows: () => alive }];
  if (leaked !== null) moments.unshift({ name: "leaked", rows: () => alive.filter((each) => each.leaked) });
  if (collected.length) moments.push({ name: "freed by the collector", rows: () => collected });
  if (recording) moments.push({ name: "at the peak", rows: () => aliveAfter(recording.peak) });
  let moment = leaked !== null && leaked.size === 0 ? moments[1] : moments[0], chosenMoment = null, sorted = "nbytes", down = true, limit = PAGE, entries = [];
  const COLUMNS = [
    ["what", "What", (entry) => entry.what], ["count", "Count", (entry) => entry.count, true],
    ["nbytes", "Bytes", (entry) => entry.nbytes, true], ["where", "Made at", (entry) => entry.where],
    ["holder", "Held by", (entry) => entry.holder], ["age", "Oldest", (entry) => entry.age, true],
  ];
  const tableBy = byId("table-by");
  for (const name of ["line", "stack", "kind", "label", "device", "scope", "thread", "thing"]) tableBy.append(make("option", name));
  tableBy.addEventListener("change", () => { limit = PAGE; fill(); });
  byId("search").addEventListener("input", () => { limit = PAGE; list(); });
  byId("more").addEventListener("click", () => { limit += PAGE * 5; list(); });

  function showMoment(next) {
    chosenMoment = moments.includes(next) ? chosenMoment : next;
    moment = next;
    limit = PAGE;
    fill();
  }
  function fill() {
    const box = byId("moments");
    box.replaceChildren(...[...moments, ...(chosenMoment ? [chosenMoment] : [])].map((each) => {
      const button = make("button", each.name);
      button.type = "button";
      button.setAttribute("aria-pressed", String(each === moment));
      button.addEventListener("click", () => { if (chart && each.name === "at the peak") chart.toPeak(); else showMoment(each); });
      return button;
    }));
    const groups = new Map(), by = tableBy.value;
    for (const thing of moment.rows()) {
      const name = BY[by](thing);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(thing);
    }
    entries = [...groups.entries()].map(([name, members]) => entry(by, name, members));
    list();
  }
  function entry(by, name, members) {
    const first = members[0], alike = (what) => members.every((each) => each[what] === first[what]);
    const label = alike("label") ? first.label : "";
    const why = members.find((each) => each.reason);
    const lines = new Set(members.map(line));
    let what = alike("kind") ? first.kind : `${new Set(members.map((each) => each.kind)).size} kinds`;
    if (by !== "line" && by !== "stack" && by !== "kind" && by !== "thing") what = name || `no ${by}`;
    if (members.length === 1) what = `${first.kind} #${first.key}`;
    return {
      members, what, label, count: members.length, nbytes: sum(members), leaked: members.some((each) => each.leaked),
      where: lines.size === 1 ? line(first) : `${count(lines.size)} lines`, holder: why ? why.reason.held_by || why.reason.reason : "",
      reason: why ? why.reason.reason : "", age: Math.max(...members.map((each) => each.age === null ? -1 : each.age)),
      text: members.slice(0, 2000).map((each) => [each.kind, "#" + each.key, each.label, each.device, each.scope, each.thread, each.stack.join(" "),
                                     each.reason ? each.reason.held_by + " " + each.reason.reason : ""].join(" ")).join(" ").toLowerCase(),
    };
  }
  function heads() {
    byId("heads").replaceChildren(...COLUMNS.map(([name, words, , number]) => {
      const head = make("th", undefined, number ? "number" : ""), button = make("button", words);
      head.scope = "col";
      head.setAttribute("aria-sort", name === sorted ? (down ? "descending" : "ascending") : "none");
      button.type = "button";
      button.addEventListener("click", () => {
        down = name === sorted ? !down : Boolean(number);
        sorted = name;
        list();
        byId("heads").children[COLUMNS.findIndex((each) => each[0] === name)].firstChild.focus();
      });
      head.append(button);
      return head;
    }));
  }
  function list() {
    heads();
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = entries.filter((each) => words.every((word) => each.text.includes(word)));
    const value = COLUMNS.find((each) => each[0] === sorted)[2];
    found.sort((a, b) => {
      const one = value(a), two = value(b);
      return ((one < two ? -1 : one > two ? 1 : 0) * (down ? -1 : 1)) || b.nbytes - a.nbytes;
    });
    const most = Math.max(1, ...found.map((each) => each.nbytes));
    const things = found.reduce((total, each) => total + each.count, 0);
    byId("count").textContent = `${count(things)} ${moment.name}, ${bytes(sum(found))}` +
      (words.length ? `, that fit \u201c${byId("search").value}\u201d` : "") + ` \u2014 ${count(found.length)} row${found.length === 1 ? "" : "s"}`;
    byId("rows").replaceChildren(...found.slice(0, limit).map((each) => row(each, most)));
    if (!found.length) {
      const nothing = make("tr"), cell = make("td", words.length ? "Nothing fits the search." : "Nothing.");
      cell.colSpan = COLUMNS.length;
      nothing.append(cell);
      byId("rows").append(nothing);
    }
    byId("more").hidden = found.length <= limit;
  }
  function row(each, most) {
    const node = make("tr", undefined, each.leaked ? "row leaked" : "row");
    node.tabIndex = 0;
    node.setAttribute("aria-expanded", "false");
    const what = make("td"), size = make("td", bytes(each.nbytes), "number"), where = make("td"), holder = make("td");
    what.append(make("b", each.what));
    if (each.label) what.append(" ", make("code", each.label));
    const share = make("span", undefined, "share");
    share.style.width = `${100 * each.nbytes / most}%`;
    size.append(share);
    where.append(each.where ? make("code", short(each.where)) : make("span", "not recorded"));
    if (each.reason) holder.append(make("span", each.reason, "tag why"));
    if (each.holder) holder.append(make("code", short(each.holder)));
    node.append(what, make("td", count(each.count), "number"), size, where, holder, make("td", each.age < 0 ? "" : seconds(each.age), "number"));
    const toggle = () => {
      const open = node.nextSibling && node.nextSibling.className === "details";
      if (open) node.nextSibling.remove(); else node.after(details(each));
      node.setAttribute("aria-expanded", String(!open));
    };
    node.addEventListener("click", () => { if (!String(window.getSelection())) toggle(); });
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { toggle(); event.preventDefault(); }
      const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      let other = next && node[next];
      while (other && other.className === "details") other = other[next];
      if (other) { other.focus(); event.preventDefault(); }
    });
    return node;
  }
  function details(each) {
    const node = make("tr", undefined, "details"), cell = make("td");
    cell.colSpan = COLUMNS.length;
    const stacks = new Map();
    for (const thing of each.members) stacks.set(thing.stack.join("\n"), thing.stack);
    let told = 0;
    for (const stack of stacks.values()) {
      if (!stack.length || told++ >= 3) continue;
      const items = make("ol");
      for (const site of stack) { const item = make("li"); item.append(make("code", site)); items.append(item); }
      cell.append(make("h3", "Made by these calls, innermost first"), items);
    }
    if (stacks.size > 3) cell.append(make("p", `and ${count(stacks.size - 3)} other stacks: group by \u201cstack\u201d to see them`));
    const known = each.members.filter((thing) => thing.reason).slice(0, 20);
    if (known.length) {
      const items = make("ul");
      for (const thing of known) {
        const item = make("li");
        item.append(make("span", thing.reason.reason, "tag why"), `${thing.reason.name}: `, make("code", thing.reason.held_by));
        items.append(item);
      }
      cell.append(make("h3", "Why they are alive"), items);
    }
    const items = make("ul");
    for (const thing of each.members.slice(0, 12)) {
      const facts = [`${thing.kind} #${thing.key}`, thing.label && `\u201c${thing.label}\u201d`, bytes(thing.nbytes), thing.device, thing.scope && `scope ${thing.scope}`,
                     thing.thread && `thread ${thing.thread}`, thing.age !== null && `${seconds(thing.age)} old`, thing.pins && `${thing.pins} pins`,
                     thing.pending && `${thing.pending} pending`, thing.exports && `${thing.exports} exports`];
      items.append(make("li", facts.filter(Boolean).join(", ")));
    }
    if (each.members.length > 12) items.append(make("li", `and ${count(each.members.length - 12)} more`));
    cell.append(make("h3", "Things"), items);
    node.append(cell);
    return node;
  }

  // ---- keys and theme --------------------------------------------------------------------------------------------
  const KEYS = [["/", "search"], ["l", "next moment of the table"], ["g", "next grouping of the table"], ["s", "next grouping of the chart"], ["p", "the peak"],
                ["+  -  0", "zoom in, out, everything"], ["\u2190 \u2192", "in the chart: move; Enter shows that moment"],
                ["\u2191 \u2193", "in the table: move; Enter opens a row"], ["t", "light or dark"], ["?", "this list"], ["Esc", "leave the search"]];
  for (const [key, words] of KEYS) byId("keys").append(make("dt", key), make("dd", words));
  function theme() {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.theme || (dark ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    if (chart) chart.draw();
  }
  function next(pick) {
    pick.selectedIndex = (pick.selectedIndex + 1) % pick.options.length;
    pick.dispatchEvent(new Event("change"));
  }
  byId("theme").addEventListener("click", theme);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (chart) chart.draw(); });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing && event.key === "Escape") { event.target.value = event.target.type === "search" ? "" : event.target.value; event.target.blur(); list(); }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    const acts = {
      "/": () => byId("search").focus(), t: theme, "?": () => byId("help").showModal(), g: () => next(tableBy),
      s: () => chart && next(chart.pick), p: () => chart && chart.toPeak(), "+": () => chart && chart.zoom(.5, chart.middle()),
      "=": () => chart && chart.zoom(.5, chart.middle()), "-": () => chart && chart.zoom(2, chart.middle()), 0: () => chart && chart.all(),
      l: () => { const at = moments.indexOf(moment); showMoment(moments[(at + 1) % moments.length]); },
    };
    if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
  });

  if (chart) chart.regroup("kind");
  fill();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
