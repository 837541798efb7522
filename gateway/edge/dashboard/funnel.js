// From prompt to delivered, and what became of the rest.

const STAGES = [
  ["prompt", "prompt", "of requests whose engine reported"],
  ["infinite", "infinite cache", "seen before by anybody"],
  ["best", "best anywhere", "on some engine, by the index"],
  ["predicted", "predicted", "on the chosen engine"],
  ["delivered", "delivered", "as the engine reported"],
];
const LOSSES = [
  ["cold", "cold", "no engine had it"],
  ["spilled", "spilled", "the chosen engine had less, and was chosen for its load"],
  ["queued_elsewhere", "queued elsewhere", "the engine that had it was full"],
  ["pending", "pending", "still being computed for another request"],
  ["evicted", "evicted", "it was there, and the engine no longer had it"],
  ["engine_disagrees", "engine disagrees", "block rounding, chat template"],
];
const WINDOWS = [
  ["1m", "1 min"],
  ["10m", "10 min"],
  ["1h", "1 h"],
  ["all", "all"],
];
const IN_WORDS = {"1m": "last minute", "10m": "last 10 min", "1h": "last hour", all: "so far"};
const BYS = [
  ["engine", "engine"],
  ["model", "model"],
  ["class", "class"],
  ["key", "key"],
];

const funnel = {told: null, ofState: null, window: "10m", by: "engine"};
choice("windows", WINDOWS, funnel.window, (it) => {
  funnel.window = it;
  showFunnel();
});
choice("bys", BYS, funnel.by, (it) => {
  funnel.by = it;
  showBy();
});

/** Without `/api/funnel` only the totals of the state are known. */
function figuresOf(window) {
  return funnel.told === null ? funnel.ofState : funnel.told.windows[window];
}

function newStage() {
  const bar = el("div", "bar", el("div", "fill"));
  return el(
    "li",
    "",
    el("span", "name", el("span"), el("small", "dim")),
    bar,
    el("span", "tokens"),
    el("span", "share"),
  );
}

function showStages(f) {
  fill($("funnel"), STAGES, newStage, (line, [field, name, what]) => {
    const [label, bar, count, part] = line.children,
      of = f.prompt > 0 ? share(f[field], f.prompt) : null;
    line.className = "s-" + field;
    set(label.firstChild, name);
    set(label.lastChild, what);
    style(bar.firstChild, "width", Math.max(0, Math.min(1, of || 0)) * 100 + "%");
    bar.firstChild.hidden = !known(of);
    set(count, f.prompt > 0 || field === "prompt" ? tokens(f[field]) : UNKNOWN);
    set(part, field === "prompt" ? "" : known(of) ? percent(of) : "–");
    if (line.tip !== f[field]) line.title = known((line.tip = f[field])) ? num(f[field]) + " tokens" : "";
  });
}

/** What is cold was never seen before, or has been forgotten by every engine since. */
function coldOf(f) {
  const fresh = Math.min(f.lost.cold, f.prompt - f.infinite);
  return (
    "no engine had it: " +
    percent(share(fresh, f.prompt)) +
    " new text, " +
    percent(share(f.lost.cold - fresh, f.prompt)) +
    " forgotten by all"
  );
}

function newLoss() {
  return el(
    "li",
    "",
    el("span", "key"),
    el("span", "", el("span"), el("small", "dim")),
    el("span", "tokens"),
    el("span", "share"),
  );
}

function showLosses(f) {
  const lost = f.lost || null,
    lostAll = lost === null ? 0 : LOSSES.reduce((sum, [kind]) => sum + (lost[kind] || 0), 0);
  const isKnown = lost !== null && f.prompt > 0;
  set(
    $("loss-note"),
    isKnown
      ? num(lostAll) + " tokens in all: prompt less delivered. Shares are of the prompt."
      : lost === null
        ? "The reasons are unknown: this gateway does not tell them."
        : "Unknown: no request with a report in this window.",
  );
  $("loss-bar").hidden = !isKnown;
  fill(
    $("loss-bar"),
    isKnown ? LOSSES : [],
    () => el("i"),
    (part, [kind]) => {
      part.className = "l-" + kind;
      style(part, "width", (share(Math.max(0, lost[kind] || 0), lostAll) || 0) * 100 + "%");
    },
  );
  fill($("losses"), isKnown ? LOSSES : [], newLoss, (line, [kind, name, what]) => {
    const [key, label, count, part] = line.children;
    key.className = "key l-" + kind;
    set(label.firstChild, name);
    set(label.lastChild, kind === "cold" && known(f.infinite) ? coldOf(f) : what);
    set(count, tokens(lost[kind]));
    set(part, percent(share(lost[kind], f.prompt)));
  });
  if (isKnown)
    attr($("loss-bar"), {
      "aria-label":
        "Computed again: " +
        LOSSES.map(([kind, name]) => name + " " + percent(share(lost[kind], lostAll), 0)).join(", "),
    });
}

function showFunnel() {
  const f = figuresOf(funnel.window);
  if (!f) return;
  // Totals alone have no windows.
  $("windows").hidden = funnel.told === null;
  showStages(f);
  showLosses(f);
  set(
    $("funnel-sentence"),
    (funnel.told && funnel.told.sentence) || (funnel.ofState && funnel.ofState.sentence) || "",
  );
  const recent = funnel.told && funnel.told.windows["10m"];
  const useAll = !recent || !known(recent.hit_rate);
  showRate(useAll ? figuresOf("all") : recent, IN_WORDS[useAll ? "all" : "10m"]);
  showBy();
  showWorth();
}

const byTable = new Table(
  "by",
  [
    {name: "name", read: (it) => it.name},
    {name: "hit rate", read: (it) => percent(it.hit_rate), n: true, bar: (it) => it.hit_rate},
    {name: "infinite cache", read: (it) => percent(share(it.infinite, it.prompt)), n: true, minor: true},
    {name: "prompt", read: (it) => (it.prompt > 0 ? tokens(it.prompt) : UNKNOWN), n: true},
    {name: "delivered", read: (it) => (it.prompt > 0 ? tokens(it.delivered) : UNKNOWN), n: true},
    {name: "most lost to", read: (it) => mostLost(it)},
    {name: "reported", read: (it) => num(it.requests), n: true},
    {
      name: "no report",
      read: (it) => num(it.unknown_requests),
      n: true,
      tone: (it) => (it.unknown_requests ? "bad" : ""),
    },
  ],
  "No figures by name.",
);

function mostLost(f) {
  const worst = LOSSES.map(([kind, name]) => [name, (f.lost || {})[kind] || 0]).sort(
    (a, b) => b[1] - a[1],
  )[0];
  return worst[1] > 0
    ? worst[0] + ", " + percent(share(worst[1], f.prompt))
    : f.prompt > 0
      ? "nothing"
      : UNKNOWN;
}

function showBy() {
  const all = (funnel.told && funnel.told.by && funnel.told.by[funnel.by]) || {};
  const rows = Object.entries(all)
    .filter(([, windows]) => windows[funnel.window])
    .map(([name, windows]) => ({name: name || "(none)", ...windows[funnel.window]}))
    .sort((a, b) => b.prompt - a.prompt || b.unknown_requests - a.unknown_requests);
  byTable.show(rows.slice(0, 100));
  $("by-hint").hidden = !rows.length;
  fill(
    $("unknown-engines"),
    Object.entries((funnel.told && funnel.told.unknown_engines) || {}),
    () => el("li", "", el("b"), el("span")),
    (line, [name, what]) => {
      set(line.firstChild, name);
      set(line.lastChild, ": hit rate unknown. " + what);
    },
  );
}

const sharesTable = new Table(
  "shares",
  [
    {name: "cached share", read: (it) => it.share},
    {name: "TTFT p50", read: (it) => ms(it.ttft_p50_ms), n: true},
    {name: "p90", read: (it) => ms(it.ttft_p90_ms), n: true},
    {name: "requests", read: (it) => num(it.requests), n: true},
  ],
  "TTFT by cached share: no stream with a report yet.",
);

function showWorth() {
  const worth = (funnel.told && funnel.told.worth) || {},
    saved = (worth.prefill_seconds_saved || {})[funnel.window],
    gained = worth.requests_per_hour_gained;
  const facts = [
    ["prefill not computed, " + IN_WORDS[funnel.window], seconds(saved), known(saved)],
    [
      "requests per hour gained" + (known(gained) ? "" : "; told from 20 requests and 5 minutes on"),
      num(gained),
      known(gained),
    ],
  ];
  fill(
    $("worth"),
    facts,
    () => el("div", "", el("dt"), el("dd")),
    (it, [name, value, isKnown]) => {
      set(it.firstChild, name);
      set(it.lastChild, value);
      it.lastChild.className = isKnown ? "" : "none";
    },
  );
  sharesTable.show((worth.ttft_by_cached_share || []).filter((it) => it.requests));
  const hour = (worth.prefill_seconds_saved || {})["1h"];
  figure("saved", seconds(hour), known(hour));
  set(
    $("saved-why"),
    known(hour)
      ? "of engines' time in the last hour" +
          (known(gained) ? ", room for " + plural(Math.round(gained), "request") + " an hour" : "")
      : "known once engines' prefill rates are",
  );
}
