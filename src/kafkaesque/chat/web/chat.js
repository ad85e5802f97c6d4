// The web chat page: DOM around view.js, over the gateway's client library (client.js).
// Text of other users is only ever set as textContent; no HTML is built from strings.

import { EdgeClient } from "./client.js";
import { View } from "./view.js";

const $ = (id) => document.getElementById(id);
const TYPING_EVERY_MS = 3000;
const HISTORY = 100;
const FRESH_MS = 10000;
const MARKS = { sending: "…", queued: "✓", delivered: "✓✓", read: "✓✓ read", failed: "✗" };
const SESSION = "kafkaesque-chat";

let client = null;
let view = null;
let state = "connecting";
let typedMs = 0;
let settings = { gateways: [] };

// -- login -----------------------------------------------------------------------------------------

async function start() {
  settings = await (await fetch("settings.json")).json();
  $("login-form").addEventListener("submit", (event) => { event.preventDefault(); enter(false); });
  $("login-register").addEventListener("click", () => {
    if ($("login-form").reportValidity()) enter(true);
  });
  wireApp();
  const kept = JSON.parse(sessionStorage.getItem(SESSION) || "null");
  if (kept) open({ token: kept.token }).catch(() => { sessionStorage.removeItem(SESSION); showLogin(""); });
}

async function enter(register) {
  const name = $("login-name").value.trim().toLowerCase();
  busy(true);
  try {
    await open({ name, password: $("login-password").value, register });
    $("login-password").value = "";
  } catch (error) {
    showLogin(said(error));
  } finally {
    busy(false);
  }
}

function busy(on) {
  for (const id of ["login-enter", "login-register"]) $(id).disabled = on;
}

function said(error) {
  if (error.code === "name-taken") return "That name is taken.";
  if (error.code === "auth-failed" || error.code === 4505) return "Wrong name or password.";
  return error.message || String(error);
}

async function open(credentials) {
  const early = [];
  client = new EdgeClient(settings.gateways, credentials);
  client.on("state", onState);
  client.on("snapshot", () => { if (view) load().catch((error) => toast(said(error))); });
  client.on("event", (event) => { if (view) onEvent(event); else early.push(event); });
  try {
    await client.start();
  } catch (error) {
    client.close();
    client = null;
    throw error;
  }
  view = new View(client.welcome.user);
  for (const event of early) onEvent(event);
  keepToken();
  $("me").textContent = view.me;
  $("login").hidden = true;
  $("app").hidden = false;
  await load();
  render();
}

function keepToken() {
  if (client.token) sessionStorage.setItem(SESSION, JSON.stringify({ token: client.token }));
}

function showLogin(text) {
  $("app").hidden = true;
  $("login").hidden = false;
  $("login-error").textContent = text;
}

function leave(text) {
  sessionStorage.removeItem(SESSION);
  if (client) client.close();
  client = view = null;
  document.title = "Kafkaesque chat";
  showLogin(text);
}

// -- loading ----------------------------------------------------------------------------------------

async function load() {
  let listed;
  try {
    listed = await client.ask("conversation.list", { limit: 200 });
  } catch (error) {
    if (error.code !== "no-account") throw error;
    await client.send("account.open", {});
    return;
  }
  view.loadConversations(listed.conversations);
  const rooms = await client.ask("room.list", { limit: 1 });
  for (const room of rooms.mine) {
    view.thread(`#${room}`);
    await client.subscribe(room);
  }
  for (let more = true; more;) {
    const page = await client.ask("message.undelivered", { limit: 200 });
    const ids = page.messages.map((message) => message.message_id);
    if (ids.length) await client.send("message.received", { message_ids: ids });
    more = page.more && ids.length > 0;
  }
  if (view.current) await history(view.current);
  render();
}

async function history(name) {
  try {
    say(view.loadHistory(await client.ask("conversation.history", { with: name, limit: HISTORY })));
  } catch (error) {
    toast(said(error));
  }
}

// -- events and commands ----------------------------------------------------------------------------

function onState(now) {
  state = now;
  renderState();
  if (now === "connected" && client) keepToken();
  if (now === "closed" && view) leave("You are logged out.");
}

function onEvent(event) {
  if (event.type === "account.deleted") { leave("This account was deleted."); return; }
  if (event.type === "result" && !event.body.ok) toast(event.body.message);
  if (event.type === "message.undeliverable") toast(`The account ${event.body.to} was deleted; your message was not delivered.`);
  if (event.type === "notification") notified(event);
  const from = event.body.from || event.body.by;
  if (from && Date.now() - event.at_ms < FRESH_MS) view.online.set(from, true);
  say(view.take(event, Date.now(), looking()));
  render();
}

// The message itself arrives as message.new; this alerts a user who has another thread open.
function notified(event) {
  const from = event.body.from;
  if (Date.now() - event.at_ms < FRESH_MS && !(looking() && view.current === from)) toast(`${from} wrote to you.`);
}

const looking = () => document.visibilityState === "visible" && document.hasFocus();

function say(commands) {
  for (const [op, body] of commands) client.send(op, body).catch((error) => toast(said(error)));
}

async function choose(name) {
  say(view.choose(name));
  render();
  $("text").focus();
  if (!view.thread(name).loaded) await history(name);
  if (!name.startsWith("#")) await lookUp(name);
  render();
}

async function lookUp(name) {
  const answer = await client.ask("account.list", { pattern: name, limit: 1 }).catch(() => null);
  if (answer && view) view.online.set(name, answer.accounts.some((row) => row.online));
}

async function write() {
  const text = $("text").value.trim();
  const to = view.current;
  if (!text || !to) return;
  $("text").value = "";
  // Not crypto.randomUUID, which is available in secure contexts only.
  const id = Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("");
  view.sent(id, to, text, Date.now());
  render();
  const [op, body] = to.startsWith("#")
    ? ["room.post", { room: to.slice(1), text, message_id: id }]
    : ["message.send", { to, text, message_id: id }];
  try {
    view.said(await client.send(op, body), id);
  } catch (error) {
    toast(said(error));
  }
}

function typing() {
  const to = view && view.current;
  if (!to || to.startsWith("#") || Date.now() - typedMs < TYPING_EVERY_MS) return;
  typedMs = Date.now();
  say([["typing", { to }]]);
}

async function find() {
  const text = $("find").value.trim().toLowerCase();
  const list = $("found");
  if (!text) { list.replaceChildren(); return; }
  try {
    if (text.startsWith("#")) await findRooms(text.slice(1), list);
    else await findPeople(text, list);
  } catch (error) {
    toast(said(error));
  }
}

async function findPeople(text, list) {
  const answer = await client.ask("account.list", { pattern: `${text}*`, limit: 20 });
  for (const row of answer.accounts) view.online.set(row.name, row.online);
  const rows = answer.accounts.filter((row) => row.name !== view.me);
  list.replaceChildren(...rows.map((row) => item(row.name, "", 0, () => pick(row.name))));
  if (!rows.length) list.replaceChildren(note("No user with that name."));
}

async function findRooms(text, list) {
  const answer = await client.ask("room.list", { pattern: `${text}*`, limit: 20 });
  const rows = answer.rooms.map((row) =>
    item(`#${row.room}`, row.member ? "member" : "join", 0, () => join("join", row.room)));
  if (text && !answer.rooms.some((row) => row.room === text)) {
    rows.push(item(`#${text}`, "create this room", 0, () => join("create", text)));
  }
  list.replaceChildren(...rows);
}

function pick(name) {
  $("find").value = "";
  $("found").replaceChildren();
  choose(name);
}

async function join(op, room) {
  try {
    await client.send(`room.${op}`, { room });
    for (let wait = 50; ; wait *= 2) {
      try { await client.subscribe(room); break; } catch (error) {
        if (error.code !== "not-a-member" || wait > 4000) throw error;
        await new Promise((done) => setTimeout(done, wait));
      }
    }
    pick(`#${room}`);
  } catch (error) {
    toast(said(error));
  }
}

// -- the page ---------------------------------------------------------------------------------------

function wireApp() {
  $("compose").addEventListener("submit", (event) => { event.preventDefault(); write(); });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); write(); }
  });
  $("text").addEventListener("input", typing);
  let waiting = 0;
  $("find").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(find, 200); });
  $("find-form").addEventListener("submit", (event) => { event.preventDefault(); find(); });
  $("logout").addEventListener("click", () => {
    // The gateway answers LOGOUT by closing, and the "closed" state shows the login form. Without a
    // connection there is no answer.
    sessionStorage.removeItem(SESSION);
    if (state !== "connected") leave("");
    else client.logout();
  });
  $("delete").addEventListener("click", () => {
    if (confirm("Delete this account? Senders of messages you have not received are notified.")) {
      client.send("account.delete", {}).catch((error) => toast(said(error)));
    }
  });
  window.addEventListener("focus", () => {
    if (view && view.current) { say(view.choose(view.current)); render(); }
  });
  setInterval(() => { if (view) renderTyping(); }, 1000);
}

function renderState() {
  const shown = { connected: "online", connecting: "connecting", disconnected: "reconnecting", closed: "offline" };
  const text = shown[state] || state;
  $("state").textContent = text;
  $("dot").dataset.state = state === "connected" ? "online" : state === "closed" ? "offline" : "connecting";
}

function render() {
  if (!view) return;
  renderState();
  const unread = view.unread();
  document.title = unread ? `(${unread}) Kafkaesque chat` : "Kafkaesque chat";
  $("threads").replaceChildren(...view.ordered().map((thread) =>
    item(thread.name, thread.lastText, thread.unread, () => choose(thread.name), thread.name === view.current)));
  const thread = view.current ? view.thread(view.current) : null;
  $("thread-name").textContent = thread ? thread.name : "";
  $("thread-note").textContent = thread && thread.members.length ? `${thread.members.length} members` : "";
  $("text").disabled = $("send").disabled = !thread;
  renderLines(thread);
  renderTyping();
}

function renderTyping() {
  const thread = view.current && view.thread(view.current);
  $("typing").textContent = thread && view.isTyping(thread, Date.now()) ? `${thread.name} is typing…` : "";
}

function renderLines(thread) {
  const list = $("lines");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  const changed = list.dataset.thread !== (thread ? thread.name : "");
  list.dataset.thread = thread ? thread.name : "";
  list.replaceChildren(...(thread ? [...thread.lines.values()].map((line) => bubble(thread, line)) : [note(
    "Find a user on the left and send a message.")]));
  if (atEnd || changed) list.scrollTop = list.scrollHeight;
}

function bubble(thread, line) {
  const mine = line.from === view.me;
  const element = document.createElement("li");
  element.className = `${mine ? "mine" : ""} ${line.stage === "failed" ? "failed" : ""}`;
  element.dataset.id = line.id;
  if (!mine && thread.name.startsWith("#")) element.append(span("by", line.from));
  element.append(line.text);
  const at = new Date(line.sentMs).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const mark = mine ? ` ${MARKS[line.stage]}${line.note ? ` ${line.note}` : ""}` : "";
  const when = span("at", at + mark);
  when.dataset.stage = mine ? line.stage : "";
  element.append(when);
  return element;
}

function item(name, last, unread, action, current = false) {
  const element = document.createElement("li");
  element.tabIndex = 0;
  element.dataset.name = name;
  element.setAttribute("aria-current", String(current));
  const presence = span(`presence ${view.online.get(name) ? "on" : ""}`, "");
  if (view.online.has(name)) presence.title = view.online.get(name) ? "online" : "not connected";
  element.append(presence, span("name", name));
  if (unread) element.append(span("badge", String(unread)));
  if (last) element.append(span("last", last));
  element.addEventListener("click", action);
  element.addEventListener("keydown", (event) => { if (event.key === "Enter") action(); });
  return element;
}

function span(className, text) {
  const element = document.createElement("span");
  element.className = className;
  element.textContent = text;
  return element;
}

function note(text) {
  const element = document.createElement("li");
  element.className = "notice";
  element.textContent = text;
  return element;
}

let toasting = 0;
function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(() => { $("toast").hidden = true; }, 5000);
}

start();
