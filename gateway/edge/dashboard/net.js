// One loop for each path: the next question is asked when the last one is answered, so a slow gateway is
// never asked twice at once. A page that nobody sees asks seldom.

const STALE_MS = 3000,
  TIMEOUT_MS = 5000,
  HIDDEN_TIMES = 10,
  MISSING_MS = 60000;

// A relative address would carry what stands before the @ of this page's own, which fetch refuses.
const HERE = location.origin + location.pathname.replace(/[^/]*$/, "");

const net = {title: document.title};

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path) {
  let answer;
  try {
    answer = await fetch(HERE + path, {signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store"});
  } catch (error) {
    throw new Error(
      error.name === "TimeoutError"
        ? "no answer within " + TIMEOUT_MS / 1000 + " s"
        : "no connection to the gateway",
    );
  }
  if (answer.ok) {
    try {
      return await answer.json();
    } catch {
      throw new Error("the answer broke off or is no JSON");
    }
  }
  const told = await answer.json().then(
    (it) => it.error.message,
    () => "",
  );
  throw new Refused(answer.status, said(answer.status, told));
}

function said(status, told) {
  if (status === 401) return "the gateway asks for its admin token (401). Load this page again to enter it.";
  if (status === 403) return "the gateway refuses this page (403): " + told;
  return "the gateway answered " + status + (told ? ": " + told : "");
}

class Source {
  /** `show` gets each answer, `fail` the error of each question that had none; `goodAt` is when the last good
      answer was asked for, so that what is shown is never older than that says. */
  constructor(path, everyMs, show, fail = () => {}) {
    Object.assign(this, {path, everyMs, show, fail, goodAt: null, error: null, timer: 0, asking: false});
  }

  async ask() {
    if (this.asking) return;
    this.asking = true;
    clearTimeout(this.timer);
    const askedAt = Date.now();
    try {
      const answer = await get(this.path);
      try {
        this.show(answer);
      } catch (error) {
        throw new Error("this page could not show it: " + error.message);
      }
      this.goodAt = askedAt;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.asking = false;
    this.fail(this.error);
    this.timer = setTimeout(() => this.ask(), Math.max(50, this.pauseMs - (Date.now() - askedAt)));
  }

  get pauseMs() {
    if (this.isMissing) return MISSING_MS;
    return document.hidden ? this.everyMs * HIDDEN_TIMES : this.everyMs;
  }

  get isMissing() {
    return this.error !== null && this.error.status === 404;
  }

  get ageMs() {
    return this.goodAt === null ? null : Date.now() - this.goodAt;
  }
}

const sources = [];

/** A path whose figures fill the elements of `ids`: what goes wrong with it is told at `noteId`, and its
    sections are dimmed while they are old. */
function source(path, everyMs, show, noteId = null, ids = []) {
  const it = new Source(path, everyMs, show, (error) => {
    if (noteId === null) return;
    set(
      $(noteId),
      error === null
        ? ""
        : it.isMissing
          ? "This gateway has no /" + path + "."
          : (it.goodAt === null ? "Nothing yet: " : "As of " + clock(it.goodAt) + ": ") + error.message,
    );
    for (const id of ids)
      $(id)
        .closest("section")
        .classList.toggle("old", error !== null && it.goodAt !== null);
  });
  sources.push(it);
  return it;
}

/** Says how old the state is; called several times a second, since no answer is what it is about. */
function showAge(state) {
  const age = state.ageMs,
    stale = age === null ? state.error !== null : age > STALE_MS;
  document.body.classList.toggle("stale", stale);
  $("banner").hidden = !stale;
  if (stale) {
    const since = age === null ? "No data yet" : "Old figures: stale since " + clock(state.goodAt);
    set($("banner-text"), since + (state.error === null ? "." : ": " + state.error.message));
    // Apart, and not read aloud each second.
    set($("banner-age"), age === null ? "" : "(" + seconds(Math.round(age / 1000)) + " ago)");
  }
  document.title = stale ? "old: prefix-gateway" : net.title;
  $("live").className = "live " + (age === null ? "" : stale ? "off" : "on");
  set($("live-text"), age === null ? "connecting" : stale ? "not live" : "live");
}

function startPolling(state) {
  sources.forEach((it) => it.ask());
  setInterval(() => showAge(state), 250);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) sources.forEach((it) => it.ask());
  });
}
