// Keyboard shortcuts and the theme switch.

const DESTINATIONS = { o: "/", t: "/topics", g: "/groups", b: "/brokers", r: "/raft", e: "/events" };

function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* the theme is not saved */ }
  document.dispatchEvent(new Event("themechange"));
}

export function startKeys({ togglePause }) {
  let isGoPending = false;
  document.getElementById("theme").addEventListener("click", toggleTheme);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog[open]")) return;
    if (isGoPending) {
      isGoPending = false;
      if (DESTINATIONS[event.key]) { location.assign(DESTINATIONS[event.key]); event.preventDefault(); }
      return;
    }
    switch (event.key) {
      case "/": document.querySelector("input[type=search], input[name=filter]")?.focus(); break;
      case "t": toggleTheme(); break;
      case "g": isGoPending = true; setTimeout(() => { isGoPending = false; }, 1500); break;
      case "p": togglePause(); break;
      case "?": document.getElementById("keys").showModal(); break;
      default: return;
    }
    event.preventDefault();
  });
}
