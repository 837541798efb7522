// The headline and what runs below its promise.

const WHAT_TO_DO = {
  metrics_stale: "An engine that is up has not reported its load for 10 s: look at its /metrics or /slots.",
  usage_missing:
    "An engine reports no cached tokens, so its hit rate is unknown: vLLM needs " +
    "--enable-prompt-tokens-details, SGLang --enable-cache-report; Ollama and TGI never report them.",
  slots_assumed:
    "An engine does not tell how many requests it runs at once, nor was it found out yet: set slots.",
  cap_mismatch:
    "An engine runs fewer requests at once than its cap says; the others wait inside, unseen by the queue.",
  access_log_lost: "Lines of the access log could not be written.",
  connections_refused: "Connections were refused: limits.max_connections was reached.",
  config_invalid: "The configuration file was changed and cannot be used; the one before stays in force.",
  redis_down: "The shared store does not answer.",
  index_disabled: "Prompts are not matched with what engines hold.",
  kv_events_lost:
    "Events of an engine's KV cache were lost: its picture is put together again from delivered tokens.",
};
const TTFT_WINDOW_MS = 600000;

/** Names of the kinds that hold now, each with what is known beyond it. */
function degradations(state) {
  return Object.entries(state.degraded || {})
    .filter(([, value]) => value)
    .map(([kind]) => {
      const more = [];
      if (kind === "cap_mismatch")
        state.engines.filter((it) => it.cap_note).forEach((it) => more.push(it.name + ": " + it.cap_note));
      if (kind === "slots_assumed")
        more.push(
          state.engines
            .filter((it) => it.slots_source === "assumed")
            .map((it) => it.name)
            .join(", "),
        );
      if (kind === "config_invalid")
        (state.reload.problems || []).forEach((it) => more.push(it.key + ": " + it.message));
      return [
        kind,
        WHAT_TO_DO[kind] || "See `degraded` in docs/reference.md.",
        more.filter(Boolean).join("; "),
      ];
    });
}

function showDegraded(state) {
  const told = degradations(state);
  for (const it of state.engines.filter((it) => it.health === "down" || it.health === "loading"))
    told.push(["engine " + it.health, it.name, it.url]);
  $("degraded").hidden = !told.length;
  fill(
    $("degraded"),
    told,
    () => el("li", "", el("b"), el("span")),
    (line, [kind, what, more]) => {
      set(line.firstChild, kind.replaceAll("_", " "));
      set(line.lastChild, " – " + what + (more ? " " + more : ""));
    },
  );
}

function figure(id, text, isKnown = true) {
  set($(id), text);
  $(id).classList.toggle("none", !isKnown);
}

function showTiles(state) {
  const up = state.engines.filter((it) => it.health === "ready" || it.health === "busy");
  const slots = up.reduce((sum, it) => sum + it.slots, 0);
  const width = state.engines.reduce((sum, it) => sum + it.in_flight, 0);
  const waiting = state.waiting.length;
  figure("flight", num(width));
  set($("flight-of"), " of " + plural(slots, "slot"));
  set(
    $("flight-why"),
    plural(state.running.length, "request") +
      " on " +
      plural(up.length, "engine") +
      (up.length < state.engines.length ? ", " + num(state.engines.length - up.length) + " not up" : ""),
  );
  figure("waiting", num(waiting));
  const longest = Math.max(0, ...state.waiting.map((it) => it.waited_s));
  set(
    $("waiting-why"),
    waiting
      ? "the longest for " + seconds(longest) + "; room for " + num(state.max_queue)
      : "room for " + num(state.max_queue),
  );
  net.title = (waiting ? "(" + waiting + ") " : "") + "prefix-gateway";
}

/** The rate of the last ten minutes, or of all time where nothing ended since. */
function showRate(f, windowName) {
  const rate = f.hit_rate,
    bound = share(f.infinite, f.prompt);
  set($("rate-name"), "Hit rate, " + windowName);
  figure("rate", percent(rate), known(rate));
  const unknown = f.unknown_requests || 0,
    requests = plural(unknown, "request");
  set(
    $("rate-why"),
    !known(rate)
      ? unknown
        ? requests + " ended without a report of cached tokens; switch it on in the engine"
        : "no request has ended yet"
      : tokens(f.delivered) +
          " of " +
          tokens(f.prompt) +
          " prompt tokens from cache" +
          (known(bound) ? "; an infinite cache would give " + percent(bound) : "") +
          (unknown ? "; " + requests + " without a report left out" : ""),
  );
  const rail = $("rate-rail");
  if (!rail.childElementCount) rail.append(el("i", "fill"), el("i", "tick"));
  style(rail.firstChild, "width", (known(rate) ? rate * 100 : 0) + "%");
  rail.lastChild.hidden = !known(bound);
  style(rail.lastChild, "left", Math.min(99.6, (bound || 0) * 100) + "%");
  attr(rail, {
    "aria-label":
      "Hit rate " + percent(rate) + (known(bound) ? ", an infinite cache would give " + percent(bound) : ""),
  });
}

function showTtft(records) {
  const recent = records.filter(
    (it) => known(it.ttft_ms) && Date.now() - Date.parse(it.time) < TTFT_WINDOW_MS,
  );
  const times = recent.map((it) => it.ttft_ms);
  figure("ttft", ms(quantile(times, 0.5)), times.length > 0);
  set(
    $("ttft-why"),
    times.length
      ? "p90 " + ms(quantile(times, 0.9)) + ", last " + plural(times.length, "stream")
      : "no stream has ended in the last 10 min; plain answers do not tell",
  );
}
