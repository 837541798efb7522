// Breakers, sessions, recent requests.

const MOST_BREAKERS = 20;

function newBreaker() {
  const shape = el(
    "dl",
    "shape",
    el("dt", "", "before"),
    el("dd", "", el("code")),
    el("dt", "", "after"),
    el("dd", "", el("code")),
  );
  return el(
    "li",
    "",
    el("span", "cost"),
    el("p", "", el("span", "kind"), " in ", el("code"), el("span", "dim")),
    el("p"),
    shape,
    el("p", "good"),
  );
}

function showBreakers(told) {
  const counted = Object.entries(told.kinds || {})
    .filter(([, count]) => count)
    .sort((a, b) => b[1] - a[1]);
  set(
    $("breaks-sum"),
    told.requests_checked
      ? plural(told.breaks, "break") +
          " in " +
          plural(told.requests_checked, "request") +
          ", " +
          tokens(told.tokens_per_hour) +
          " tokens an hour computed again" +
          (counted.length
            ? ": " + counted.map(([kind, count]) => words(kind) + " " + num(count)).join(", ")
            : "") +
          (told.skipped ? "; " + num(told.skipped) + " not looked at" : "") +
          "."
      : "No prompt could be compared with one before it yet.",
  );
  fill($("breakers"), (told.breakers || []).slice(0, MOST_BREAKERS), newBreaker, (item, it) => {
    const [cost, head, sentence, shape, fix] = item.children;
    set(cost, tokens(it.tokens_per_hour) + " tokens/h");
    set(head.children[0], words(it.kind));
    set(head.children[1], it.part);
    set(
      head.children[2],
      " · " +
        [it.scope, it.client, it.model].filter(Boolean).join(" · ") +
        " · " +
        plural(it.count, "time") +
        ", last at " +
        clock(it.last_at),
    );
    set(sentence, it.sentence || "");
    // The text itself comes only while `show_prompt_text` is on.
    const before = it.text_before || it.before,
      after = it.text_after || it.after;
    shape.hidden = !before && !after;
    set(shape.children[1].firstChild, before || "");
    set(shape.children[3].firstChild, after || "");
    set(fix, it.fix ? "Fix: " + it.fix : "");
  });
}

const words = (kind) => String(kind).replaceAll("_", " ");

const enginesOf = ({engine, engines}) =>
  engines && engines.length > 1 ? engines.length + " engines: " + engines.join(", ") : engine || "none";

const sessionsTable = new Table(
  "sessions",
  [
    {name: "last at", read: (it) => clock(it.last_at)},
    {name: "session", read: (it) => short(it.session), cls: "id"},
    {name: "client", read: (it) => it.client || UNKNOWN},
    {name: "engine", read: enginesOf},
    {name: "class", read: (it) => it.workload_class, minor: true},
    {
      name: "reported",
      read: (it) => num(it.reported_requests) + " of " + num(it.requests),
      n: true,
    },
    {name: "prompt", read: (it) => (known(it.hit_rate) ? tokens(it.prompt_tokens) : UNKNOWN), n: true},
    {name: "hit rate", read: (it) => percent(it.hit_rate), n: true, bar: (it) => it.hit_rate},
    {name: "breaks", read: (it) => num(it.breaks), n: true, tone: (it) => (it.breaks ? "bad" : "")},
    {name: "model", read: (it) => it.model, minor: true},
  ],
  "No session yet: clients name theirs in a header, or their prompts go on from each other.",
);

const recentTable = new Table(
  "recent",
  [
    {name: "ended", read: (it) => clock(it.time)},
    {name: "engine", read: (it) => it.engine || "none"},
    {name: "route", read: (it) => it.route},
    {
      name: "outcome",
      read: (it) => words(it.outcome) + (it.code && it.code !== it.outcome ? " (" + it.code + ")" : ""),
      tone: (it) => (it.outcome === "ok" ? "" : it.outcome.startsWith("client_") ? "warm" : "bad"),
    },
    {name: "queue", read: (it) => ms(it.queue_ms), n: true},
    {name: "TTFT", read: (it) => (it.stream ? ms(it.ttft_ms) : "not a stream"), n: true},
    {name: "in all", read: (it) => ms(it.duration_ms), n: true},
    {name: "prompt", read: (it) => tokens(it.prompt_tokens), n: true},
    {name: "predicted", read: (it) => tokens(it.predicted_cached_tokens), n: true},
    {
      name: "delivered",
      read: (it) => tokens(it.cached_tokens),
      n: true,
      bar: (it) => share(it.cached_tokens, it.prompt_tokens),
    },
    {
      name: "most lost to",
      read: (it) => (it.lost ? mostLost({lost: it.lost, prompt: it.prompt_tokens}) : UNKNOWN),
    },
    {name: "model", read: (it) => it.model},
    {name: "class", read: (it) => it.workload_class, minor: true},
    {name: "api", read: (it) => it.api, minor: true},
    {name: "id", read: (it) => short(it.id), cls: "id", minor: true},
  ],
  "No request has ended yet.",
);
