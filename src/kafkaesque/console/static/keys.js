// Keys and the theme.

const GOES = { o: "/", t: "/topics", g: "/groups", b: "/brokers", r: "/raft", e: "/events" };

function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* not kept, then */ }
  document.dispatchEvent(new Event("themechange"));
}

export function startKeys({ togglePause }) {
  let isGoing = false;
  document.getElementById("theme").addEventListener("click", toggleTheme);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog[open]")) return;
    if (isGoing) {
      isGoing = false;
      if (GOES[event.key]) { location.assign(GOES[event.key]); event.preventDefault(); }
      return;
    }
    switch (event.key) {
      case "/": document.querySelector("input[type=search], input[name=filter]")?.focus(); break;
      case "t": toggleTheme(); break;
      case "g": isGoing = true; setTimeout(() => { isGoing = false; }, 1500); break;
      case "p": togglePause(); break;
      case "?": document.getElementById("keys").showModal(); break;
      default: return;
    }
    event.preventDefault();
  });
}
