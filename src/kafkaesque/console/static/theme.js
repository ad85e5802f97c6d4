// Before the first paint, so that a dark page never flashes white. Storage may be forbidden.
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch (error) { /* the system's choice stands */ }
