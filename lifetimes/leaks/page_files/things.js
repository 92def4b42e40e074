// What the document says: things that are alive, a history of bytes, who was alive when.
const doc = JSON.parse(byId("document").textContent);
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
