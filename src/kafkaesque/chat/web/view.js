// The view model of the chat page: conversations, messages, unread counts, typing. No DOM, no network.
// Same rules as chat/client/rules/view.py. An event may arrive twice (in the history and from the inbox);
// message ids identify duplicates.

const STAGES = { sending: 0, queued: 1, delivered: 2, read: 3, failed: 4 };
const TYPING_MS = 6000;
const LINES_MAX = 500;

export class View {
  constructor(me) {
    this.me = me;
    this.threads = new Map();
    this.current = null;
    this.online = new Map();
    this.pending = new Map(); // message id to thread
    this.commands = new Map(); // command id to message id
  }

  thread(name) {
    if (!this.threads.has(name)) {
      this.threads.set(name, {
        name, lines: new Map(), unread: 0, lastMs: 0, lastText: "", typingMs: 0, loaded: false,
        more: false, members: [],
      });
    }
    return this.threads.get(name);
  }

  ordered() {
    return [...this.threads.values()].sort((a, b) => b.lastMs - a.lastMs || (a.name < b.name ? -1 : 1));
  }

  unread() {
    let sum = 0;
    for (const thread of this.threads.values()) sum += thread.unread;
    return sum;
  }

  put(thread, line) {
    if (line.sentMs >= thread.lastMs) { thread.lastMs = line.sentMs; thread.lastText = line.text; }
    const known = thread.lines.get(line.id);
    if (known) { this.advance(known, line.stage); return false; }
    thread.lines.set(line.id, line);
    if (thread.lines.size > LINES_MAX) thread.lines.delete(thread.lines.keys().next().value);
    return true;
  }

  advance(line, stage) {
    if (STAGES[stage] > STAGES[line.stage]) line.stage = stage;
  }

  // -- user actions: each returns the commands to send, as [op, body] --------------------------------

  choose(name) {
    this.current = name;
    if (name === null) return [];
    const thread = this.thread(name);
    thread.unread = 0;
    return this.readAll(thread);
  }

  sent(id, to, text, nowMs) {
    const messageId = `${this.me}/${id}`;
    this.pending.set(messageId, to);
    this.put(this.thread(to), { id: messageId, from: this.me, text, sentMs: nowMs, stage: "sending" });
  }

  // The gateway acknowledged message `id` as command `commandId`.
  said(commandId, id) {
    if (this.pending.has(`${this.me}/${id}`)) this.commands.set(commandId, `${this.me}/${id}`);
  }

  readAll(thread) {
    if (thread.name.startsWith("#")) return [];
    const ids = [];
    for (const line of thread.lines.values()) {
      if (line.from !== this.me && line.stage !== "read") { line.stage = "read"; ids.push(line.id); }
    }
    return ids.length ? [["message.read", { message_ids: ids }]] : [];
  }

  // -- events -----------------------------------------------------------------------------------------

  take(event, nowMs, looking) {
    const { type, body } = event;
    switch (type) {
      case "message.new": return this.message(body, looking);
      case "room.message": this.roomMessage(body, looking); break;
      case "message.delivered": case "message.read": case "message.undeliverable": {
        const line = this.threads.get(body.by || body.to)?.lines.get(body.message_id);
        if (line) this.advance(line, type === "message.undeliverable" ? "failed" : type.split(".")[1]);
        break;
      }
      case "typing":
        if (nowMs - body.at_ms < TYPING_MS) this.thread(body.from).typingMs = nowMs;
        break;
      case "result": {
        const messageId = body.message_id || this.commands.get(event.re);
        const line = this.threads.get(this.pending.get(messageId))?.lines.get(messageId);
        this.pending.delete(messageId);
        this.commands.delete(event.re);
        if (line) { this.advance(line, body.ok ? "queued" : "failed"); line.note = body.ok ? "" : body.message; }
        break;
      }
    }
    return [];
  }

  message(body, looking) {
    const thread = this.thread(body.from);
    thread.typingMs = 0;
    const fresh = this.put(thread, {
      id: body.message_id, from: body.from, text: body.text, sentMs: body.sent_ms, stage: "delivered",
    });
    if (!fresh) return [];
    const received = ["message.received", { message_ids: [body.message_id] }];
    if (looking && this.current === thread.name) return [received, ...this.readAll(thread)];
    thread.unread += 1;
    return [received];
  }

  roomMessage(body, looking) {
    const thread = this.thread(`#${body.room}`);
    const fresh = this.put(thread, {
      id: body.message_id, from: body.from, text: body.text, sentMs: body.sent_ms, stage: "queued",
    });
    if (fresh && body.from !== this.me && !(looking && this.current === thread.name)) thread.unread += 1;
  }

  isTyping(thread, nowMs) { return nowMs - thread.typingMs < TYPING_MS; }

  // -- replies ----------------------------------------------------------------------------------------

  loadConversations(rows) {
    for (const row of rows) {
      const thread = this.thread(row.with);
      thread.unread = row.with === this.current ? 0 : row.unread;
      if (row.last_ms >= thread.lastMs) { thread.lastMs = row.last_ms; thread.lastText = row.last_text; }
    }
  }

  loadHistory(body) {
    const thread = this.thread(body.with);
    thread.members = body.members || [];
    thread.more = body.more;
    const known = thread.lines;
    const received = [];
    thread.lines = new Map();
    for (const row of body.messages) {
      const line = { id: row.message_id, from: row.from, text: row.text, sentMs: row.sent_ms, stage: row.stage };
      if (line.from !== this.me && line.stage === "queued" && !thread.name.startsWith("#")) {
        line.stage = "delivered";
        received.push(line.id);
      }
      this.put(thread, line);
    }
    for (const line of known.values()) this.put(thread, line);
    thread.loaded = true;
    const says = received.length ? [["message.received", { message_ids: received }]] : [];
    if (this.current === thread.name) { thread.unread = 0; says.push(...this.readAll(thread)); }
    return says;
  }
}
