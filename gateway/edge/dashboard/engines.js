// Engines, with their slots as cells: one path for each kind of cell, so that thousands of slots stay quick.

const CELLS = [
  ["producing", "producing"],
  ["prefill", "prefill"],
  ["cooling", "cooling: its client left"],
  ["foreign", "someone else's"],
  ["idle", "idle"],
  ["beyond", "beyond the cap"],
];
const MOST_CELLS = 2048;
legend("cells-legend", CELLS);

/** How many cells of each kind; those beyond the cap come last, whatever they are. */
function cellsOf(engine, running) {
  const beyond = Math.max(0, engine.in_flight + engine.cooling + Math.max(0, engine.foreign) - engine.slots);
  const counts = [
    ["producing", running.producing],
    ["prefill", Math.max(0, engine.in_flight - running.producing)],
    ["cooling", engine.cooling],
    ["foreign", Math.max(0, engine.foreign)],
  ];
  let over = beyond;
  for (const entry of counts.slice().reverse()) {
    const taken = Math.min(over, entry[1]);
    entry[1] -= taken;
    over -= taken;
  }
  const used = counts.reduce((sum, [, count]) => sum + count, 0);
  const isUp = engine.health === "ready" || engine.health === "busy";
  return [...counts, [isUp ? "idle" : "shut", Math.max(0, engine.slots - used)], ["beyond", beyond]];
}

function columnsFor(count) {
  return count <= 12 ? Math.max(count, 8) : count <= 64 ? 16 : count <= 256 ? 32 : count <= 1024 ? 48 : 64;
}

function pathOf(from, count, columns) {
  let path = "";
  for (let at = from; at < from + count; at++)
    path += "M" + ((at % columns) + 0.1) + " " + (Math.floor(at / columns) + 0.1) + "h.8v.8h-.8z";
  return path;
}

function drawCells(svg, cells) {
  const total = cells.reduce((sum, [, count]) => sum + count, 0);
  const per = Math.max(1, Math.ceil(total / MOST_CELLS));
  const key = cells.map(([kind, count]) => kind + count).join();
  if (svg.key === key) return per;
  svg.key = key;
  const drawn = cells.map(([kind, count]) => [kind, Math.ceil(count / per)]).filter(([, count]) => count);
  const columns = columnsFor(drawn.reduce((sum, [, count]) => sum + count, 0));
  let at = 0;
  fill(
    svg,
    drawn,
    () => draw("path"),
    (path, [kind, count]) => {
      attr(path, {class: kind, d: pathOf(at, count, columns)});
      at += count;
    },
  );
  attr(svg, {
    viewBox: "0 0 " + columns + " " + Math.max(1, Math.ceil(at / columns)),
    "aria-label":
      "Slots: " +
      cells
        .filter(([, count]) => count)
        .map(([kind, count]) => count + " " + kind)
        .join(", "),
  });
  return per;
}

function newCard() {
  const card = el(
    "article",
    "engine",
    el("h3", "", el("b"), el("span")),
    el("p", "what"),
    draw("svg", {class: "cells", role: "img"}),
    el("p", "count"),
    el("p", "warm"),
    el("p", "kv-text dim"),
    el("div", "kv", el("i")),
    el("p", "dim"),
  );
  const [head, what, cells, count, note, kv, bar, pace] = card.children;
  card.parts = {name: head.firstChild, health: head.lastChild, what, cells, count, note, kv, bar, pace};
  return card;
}

function healthOf(engine) {
  return [
    engine.health,
    ...(engine.draining ? ["draining"] : []),
    ...(engine.leaving ? ["leaving"] : []),
  ].join(", ");
}

function kvOf(engine) {
  if (!known(engine.running) && !known(engine.kv_usage))
    return "engine's own load: unknown, it does not report";
  const old =
    known(engine.report_age_s) && engine.report_age_s > 5 ? ", " + seconds(engine.report_age_s) + " ago" : "";
  return (
    "engine: " +
    num(engine.running) +
    " running, " +
    num(engine.waiting) +
    " waiting, KV " +
    percent(engine.kv_usage, 0) +
    old
  );
}

function showCard(card, engine, running) {
  const it = card.parts,
    health = healthOf(engine),
    isGood = health === "ready" || health === "busy";
  card.classList.toggle("down", engine.health === "down");
  set(it.name, engine.name);
  set(it.health, health);
  it.health.className = isGood ? "good" : "bad";
  set(it.what, engine.kind + " · " + (engine.models.join(", ") || "models unknown"));
  if (it.what.title !== engine.url) it.what.title = engine.url;
  const per = drawCells(it.cells, cellsOf(engine, running));
  set(
    it.count,
    num(engine.in_flight) +
      " of " +
      plural(engine.slots, "slot") +
      ", " +
      engine.slots_source +
      (engine.cooling ? "; " + num(engine.cooling) + " cooling" : "") +
      (engine.usable < engine.slots ? "; " + num(engine.usable) + " usable" : "") +
      (per > 1 ? "; a cell is " + num(per) + " slots" : ""),
  );
  set(it.note, engine.cap_note || "");
  it.note.hidden = !engine.cap_note;
  set(it.kv, kvOf(engine));
  it.bar.hidden = !known(engine.kv_usage);
  it.bar.className = "kv" + (engine.kv_usage > 0.9 ? " full" : "");
  style(it.bar.firstChild, "width", Math.round((engine.kv_usage || 0) * 100) + "%");
  const p = engine.prefill_tokens_per_s,
    d = engine.decode_tokens_per_s;
  set(
    it.pace,
    "prefill " +
      (known(p) ? num(p) + " tok/s" : UNKNOWN) +
      ", decode " +
      (known(d) ? num(d) + " tok/s" : UNKNOWN) +
      " · " +
      (engine.restarts ? plural(engine.restarts, "restart") + " · " : "") +
      tokens(engine.blocks) +
      " blocks known",
  );
}

function showEngines(state) {
  const running = new Map();
  for (const it of state.running) {
    const its = running.get(it.engine) || {producing: 0};
    if (it.producing) its.producing += it.width;
    running.set(it.engine, its);
  }
  fill($("engines"), state.engines, newCard, (card, engine) => {
    const its = engine.leaving ? null : running.get(engine.name);
    showCard(card, engine, {producing: Math.min(engine.in_flight, its ? its.producing : 0)});
  });
}

const queueTable = new Table(
  "queue",
  [
    {name: "#", read: (it) => num(it.position), n: true},
    {name: "waited", read: (it) => seconds(it.waited_s), n: true},
    {name: "waits for", read: (it) => it.why, cls: "long"},
    {name: "engine", read: (it) => it.engine || "any"},
    {name: "model", read: (it) => it.model},
    {name: "priority", read: (it) => it.priority, minor: true},
    {name: "slots", read: (it) => num(it.width), n: true, minor: true},
    {name: "id", read: (it) => short(it.id), cls: "id", minor: true},
  ],
  "Nothing waits.",
);
const activeTable = new Table(
  "active",
  [
    {name: "age", read: (it) => seconds(it.age_s), n: true},
    {
      name: "state",
      read: (it) => (it.producing ? "producing" : "no token yet"),
      tone: (it) => (it.producing ? "good" : "warm"),
    },
    {name: "engine", read: (it) => it.engine},
    {name: "model", read: (it) => it.model},
    {name: "route", read: (it) => it.route + (it.attempt > 1 ? ", attempt " + num(it.attempt) : "")},
    {name: "predicted", read: (it) => tokens(it.predicted_cached_tokens), n: true, minor: true},
    {name: "session", read: (it) => (it.session ? short(it.session) : "none named"), cls: "id", minor: true},
    {name: "id", read: (it) => short(it.id), cls: "id", minor: true},
  ],
  "Nothing runs.",
);
const MOST_ROWS = 50;

/** What the queue waits for, by how many. */
function reasons(waiting) {
  const counts = new Map();
  for (const it of waiting) counts.set(it.why, (counts.get(it.why) || 0) + 1);
  const top = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 3);
  return (
    top.map(([why, count]) => num(count) + " for " + why).join("; ") +
    (counts.size > 3 ? "; others for other things" : "")
  );
}

function showQueue(state) {
  set(
    $("queue-why"),
    state.waiting.length
      ? plural(state.waiting.length, "request waits", "requests wait") +
          ": " +
          reasons(state.waiting) +
          (state.waiting.length > MOST_ROWS ? ". The first " + MOST_ROWS + ":" : ".")
      : "",
  );
  queueTable.show(state.waiting.slice(0, MOST_ROWS));
  const oldest = state.running
    .slice()
    .sort((a, b) => b.age_s - a.age_s)
    .slice(0, MOST_ROWS);
  set(
    $("active-why"),
    state.running.length > MOST_ROWS
      ? "The oldest " + MOST_ROWS + " of " + num(state.running.length) + "."
      : "",
  );
  activeTable.show(oldest);
}
