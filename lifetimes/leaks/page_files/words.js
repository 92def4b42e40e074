// Words and numbers, and making elements.  Text goes into the page as text only.
const byId = (name) => document.getElementById(name);
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
const counted = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
// Math.max(...list) would put the whole list on the stack, which has room for some ten thousand.
const largest = (list, of, least) => list.reduce((found, each) => Math.max(found, of(each)), least);
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
