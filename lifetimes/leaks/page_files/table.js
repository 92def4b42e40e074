// Who holds what: rows of things that have something in common, sorted and searched.
const PAGE = 200;  // rows at once
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
    reason: why ? why.reason.reason : "", age: largest(members, (each) => each.age === null ? -1 : each.age, -1),
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
  const most = largest(found, (each) => each.nbytes, 1);
  const things = found.reduce((total, each) => total + each.count, 0);
  byId("count").textContent = `${count(things)} ${moment.name}, ${bytes(sum(found))}` +
    (words.length ? `, that fit \u201c${byId("search").value}\u201d` : "") + ` \u2014 ${counted(found.length, "row")}`;
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
  if (each.nbytes) {
    const share = make("span", undefined, "share");
    share.style.width = `${100 * each.nbytes / most}%`;
    size.append(share);
  }
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
                   thing.thread && `thread ${thing.thread}`, thing.age !== null && `${seconds(thing.age)} old`, thing.pins && counted(thing.pins, "pin"),
                   thing.pending && `${thing.pending} pending`, thing.exports && counted(thing.exports, "export")];
    items.append(make("li", facts.filter(Boolean).join(", ")));
  }
  if (each.members.length > 12) items.append(make("li", `and ${count(each.members.length - 12)} more`));
  cell.append(make("h3", "Things"), items);
  node.append(cell);
  return node;
}
