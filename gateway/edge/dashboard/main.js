// What is asked how often, and the theme.

const THEMES = ["auto", "light", "dark"],
  THEME_KEY = "prefix-gateway-theme";

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  set($("theme"), "theme: " + theme);
}

/** The browser may forbid to keep it; the choice then lasts as long as the page. */
function keptTheme() {
  try {
    const kept = localStorage.getItem(THEME_KEY);
    return THEMES.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}

let theme = keptTheme();
setTheme(theme);
$("theme").onclick = () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  setTheme(theme);
  try {
    localStorage.setItem(THEME_KEY, theme);
  } catch {
    /* see keptTheme */
  }
};

function showState(state) {
  set($("about"), state.version + " · up " + seconds(state.uptime_s) + " · policy " + state.policy);
  showTiles(state);
  showDegraded(state);
  showEngines(state);
  showQueue(state);
  funnel.ofState = state.funnel;
  if (funnel.told === null) showFunnel();
}

function showRequests(told) {
  recentTable.show(told.requests.slice(0, 60));
  showTtft(told.requests);
  showSplit(told.requests);
}

function showFunnelTold(told) {
  funnel.told = told;
  showFunnel();
  showSeries(told.series);
}

const state = source("api/state", 1000, showState);
source("api/requests?limit=200", 5000, showRequests, "recent-note", ["recent", "split"]);
source("api/funnel", 5000, showFunnelTold, "funnel-note", ["funnel", "losses", "by", "chart", "worth"]);
source("api/marks", 5000, showMarks, "marks-note", ["marks"]);
source("api/breakers", 5000, showBreakers, "breaks-note", ["breakers"]);
source("api/sessions", 5000, (told) => sessionsTable.show(told.sessions), "sessions-note", ["sessions"]);
source("api/operating-point", 15000, showPoint, "point-note", ["point"]);
startPolling(state);
