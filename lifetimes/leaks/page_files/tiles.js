// The figures at the top.
function tile(words, value, small, alarm) {
  const node = make("div", undefined, alarm ? "tile alarm" : "tile");
  node.append(make("span", words), make("b", value));
  if (small) node.append(make("small", small));
  byId("tiles").append(node);
}
const sum = (list) => list.reduce((total, each) => total + each.nbytes, 0);
const created = new Date(doc.created * 1000);
byId("about").textContent = `${leaked === null ? doc.title : "what a program has left"}, ${created.toISOString().replace("T", " ").slice(0, 19)} UTC`;
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
const oldest = largest(alive, (each) => each.age === null ? -1 : each.age, -1);
if (oldest >= 0) tile("oldest", seconds(oldest));
