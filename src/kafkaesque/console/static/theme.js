// Runs before the first paint, so that a dark page does not flash white. Storage may be disabled.
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch (error) { /* the system's theme applies */ }
