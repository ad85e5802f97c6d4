// Makes one tree look like another with as few changes as it takes, so that focus, selection and
// open details stay where they are. Children are matched by data-key, then by place.

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function isAlike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function morphAttributes(from, to) {
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(name === "open" && from.nodeName === "DETAILS")) from.removeAttribute(name);
  }
}

function morphNode(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.isEqualNode(to)) return;
  morphAttributes(from, to);
  if (from.nodeName !== "INPUT" && from.nodeName !== "TEXTAREA") morph(from, to);
}

export function morph(from, to) {
  const keyed = new Map();
  for (const child of from.childNodes) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    let found = key !== null ? keyed.get(key) : at;
    if (found && key === null && keyOf(found) !== null) found = null;
    if (found && isAlike(found, wanted)) {
      if (found === at) at = at.nextSibling;
      else from.insertBefore(found, at);
      morphNode(found, wanted);
      if (key !== null) keyed.delete(key);
    } else {
      from.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
