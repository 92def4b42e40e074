// Keys and theme, and the beginning.
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
