// The gateway client for browsers: one module without dependencies. It follows the rules of
// kafkaesque/edge/client_state.py: it reconnects, resumes after the last received event, and repeats
// unacknowledged commands. docs/GATEWAY.md specifies the protocol.
//
//   const client = new EdgeClient(["ws://127.0.0.1:7000/"], {name: "alice", password: "..."});
//   client.on("event", event => ...);        // {position, type, body, re, at_ms, room}
//   client.on("state", state => ...);        // connecting, connected, disconnected, closed
//   client.on("snapshot", why => ...);       // missed events are no longer in the log: reload
//   await client.start();
//   const id = await client.send("message.send", {to: "bob", text: "hello"});
//   const answer = await client.ask("account.list", {limit: 10});
//   await client.subscribe("lobby");

export const Opcode = Object.freeze({
  HELLO: 1, AUTH: 2, RESUME: 3, PING: 4, SEND: 5, ASK: 6, SUB: 7, UNSUB: 8, CREDIT: 9, LOGOUT: 10,
  WELCOME: 64, RESUMED: 65, INVALID_SESSION: 66, PONG: 67, ACK: 68, ANSWER: 69, EVENT: 70,
  GOAWAY: 71, ERROR: 72, BYE: 73,
});

export const SUBPROTOCOL = "kafkaesque.v1.json";
const FIRST_FINAL_CODE = 4500;
const AUTH_FAILED = 4505;
const BACKOFF_MS = 100;
const BACKOFF_MS_MAX = 10000;
const RETRY_MS = 250;
const REFRESH_SHARE = 0.8;
const ASK_MS_MAX = 30000;

export class RequestFailed extends Error {
  constructor(code, text) {
    super(`${code}: ${text}`);
    this.code = code;
  }
}

export class ClientClosed extends Error {
  constructor(code, text) {
    super(text || `closed with ${code}`);
    this.code = code;
  }
}

// Full jitter: the clients of a gateway that died reconnect at different times.
export function backoffMs(failures, chance) {
  return Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** Math.min(failures, 16)) * chance;
}

function randomText() {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
}

export class EdgeClient {
  // credentials: {token} or {name, password, register}. options: {appVersion, position, WebSocket}.
  constructor(addresses, credentials, options = {}) {
    this.addresses = [...addresses];
    this.credentials = {...credentials};
    this.appVersion = options.appVersion || "";
    this.position = options.position ?? null;
    this.token = credentials.token ?? null;
    this.WebSocket = options.WebSocket || globalThis.WebSocket;
    this.rooms = new Map();
    this.requests = new Map();
    this.listeners = new Map();
    this.welcome = null;
    this.state = "new";
    this.counts = {connects: 0, disconnects: 0, replayed: 0, repeated: 0};
    this._preferred = [];
    this._prefix = randomText();
    this._number = 0;
    this._failures = 0;
    this._timers = new Set();
    this._socket = null;
    this._ended = false;
  }

  on(what, listener) {
    if (!this.listeners.has(what)) this.listeners.set(what, new Set());
    this.listeners.get(what).add(listener);
    return () => this.listeners.get(what).delete(listener);
  }

  start() {
    this._first = new Promise((resolve, reject) => {
      this._started = resolve;
      this._refused = reject;
    });
    this._connect();
    return this._first;
  }

  close() {
    this._end(new ClientClosed(0, "closed by its owner"));
  }

  logout() {
    this._say(Opcode.LOGOUT, {});
  }

  // Resolves with the command's id when it is in the log; its result is an event with that `re`.
  send(op, body = {}) {
    return this._request(Opcode.SEND, {op, body}).then(({id}) => id);
  }

  ask(op, body = {}, timeoutMs = ASK_MS_MAX) {
    const asked = this._request(Opcode.ASK, {op, body});
    const id = asked.id;
    const patience = new Promise((_, reject) => this._after(timeoutMs, () => {
      this.requests.delete(id);
      reject(new RequestFailed("timeout", `no answer to ${op}`));
    }));
    return Promise.race([asked, patience]).then(({value}) => value);
  }

  async subscribe(room, position = null) {
    const {value} = await this._request(Opcode.SUB, {room, position});
    if (!this.rooms.has(room)) this.rooms.set(room, value.position);
  }

  async unsubscribe(room) {
    this.rooms.delete(room);
    await this._request(Opcode.UNSUB, {room});
  }

  // -- the connection ------------------------------------------------------------------------------

  _connect() {
    if (this._ended) return;
    this._tell("connecting");
    let address = this._preferred.shift();
    if (!address) {
      this.addresses.push(this.addresses.shift());
      address = this.addresses[this.addresses.length - 1];
    }
    const socket = new this.WebSocket(address, [SUBPROTOCOL]);
    this._socket = socket;
    socket.onopen = () => {
      this.counts.connects += 1;
      this._say(Opcode.HELLO, {app_version: this.appVersion, client: "kafkaesque-js"});
      this._say(Opcode.AUTH, this._auth());
      this._say(Opcode.RESUME, {position: this.position});
    };
    socket.onmessage = message => {
      this._heardAt = Date.now();
      if (socket === this._socket) this._heard(...JSON.parse(message.data));
    };
    socket.onclose = event => {
      if (socket === this._socket) this._disconnected(event.code, event.reason);
    };
  }

  _auth() {
    if (this.token !== null) return {token: this.token};
    const {name, password, register} = this.credentials;
    return {name, password, register: Boolean(register)};
  }

  _disconnected(code, reason) {
    this._failures = this.welcome ? 0 : this._failures + 1;
    if (this.welcome) this.counts.disconnects += 1;
    this.welcome = null;
    this._socket = null;
    this._tell("disconnected");
    const final = code >= FIRST_FINAL_CODE && code < 5000;
    if (final && !this._mayRetry(code)) {
      this._end(new ClientClosed(code, reason));
      return;
    }
    this._after(backoffMs(this._failures, Math.random()), () => this._connect());
  }

  // After a rejected token, tries the password.
  _mayRetry(code) {
    if (code !== AUTH_FAILED || this.token === null || !this.credentials.password) return false;
    this.token = null;
    return true;
  }

  _leave() {
    if (this._socket) this._socket.close(1000);
  }

  _keepAlive() {
    const welcome = this.welcome;
    if (!welcome) return;
    this._after(welcome.heartbeat_ms * 0.8, () => {
      if (welcome !== this.welcome) return;
      if (Date.now() - this._heardAt > welcome.heartbeat_ms * 2.5) return this._leave();
      this._say(Opcode.PING, {t: Date.now()});
      this._keepAlive();
    });
    const life = (welcome.expires_ms - Date.now()) * REFRESH_SHARE;
    this._after(life, () => {
      if (welcome === this.welcome && this.token) {
        this._say(Opcode.AUTH, {token: this.token, refresh: true});
      }
    });
  }

  // -- messages ------------------------------------------------------------------------------------

  _heard(opcode, said) {
    switch (opcode) {
      case Opcode.EVENT: return this._happened(said);
      case Opcode.ACK: return this._settle(said.id, null);
      case Opcode.ANSWER:
        if (said.ok) return this._settle(said.id, said.body ?? null);
        return this._reject(said.id, new RequestFailed(said.code, said.message || ""));
      case Opcode.PONG:
        if (said.position) this.position = said.position;
        return;
      case Opcode.WELCOME: return this._welcomed(said);
      case Opcode.RESUMED:
        this.position = said.position;
        this.counts.replayed += said.replayed;
        this._tell("connected");
        return this._started();
      case Opcode.INVALID_SESSION: return this._invalid(said);
      case Opcode.ERROR: return this._failed(said);
      case Opcode.GOAWAY:
        this._preferred = (said.targets || []).map(target => this._addressOf(target));
        return this._after(said.after_ms, () => this._leave());
      default: return undefined;
    }
  }

  // GOAWAY targets are HOST:PORT; scheme and path are those of the known address.
  _addressOf(target) {
    const url = new URL(this.addresses[0]);
    url.host = target;
    return url.href;
  }

  _happened(event) {
    if (!event.room) this.position = event.position;
    else if (this.rooms.has(event.room)) this.rooms.set(event.room, event.position);
    this._emit("event", event);
  }

  _welcomed(welcome) {
    const refreshed = this.welcome !== null;
    this.welcome = welcome;
    if (welcome.token) this.token = welcome.token;
    this.credentials.register = false;
    this._emit("welcome", welcome);
    this._keepAlive();
    if (refreshed) return;
    const subscribing = new Set();
    for (const {opcode, said} of this.requests.values()) {
      if (opcode === Opcode.SUB) subscribing.add(said.room);
      this.counts.repeated += 1;
      this._say(opcode, said);
    }
    for (const [room, position] of this.rooms) {
      if (!subscribing.has(room)) this._say(Opcode.SUB, {id: this._newId(), room, position});
    }
  }

  _invalid({reason, live, room}) {
    this._emit("snapshot", {reason, room: room ?? null});
    if (!room) {
      this.position = live;
      this._say(Opcode.RESUME, {position: live});
    } else if (this.rooms.has(room)) {
      this.rooms.set(room, live);
      this._say(Opcode.SUB, {id: this._newId(), room, position: live});
    }
  }

  _failed({id, code, message, retry, retry_after_ms}) {
    const failure = new RequestFailed(code, message || "");
    if (id === undefined) return this._end(failure);
    if (!retry || !this.requests.has(id)) return this._reject(id, failure);
    this._after(Math.max(retry_after_ms || 0, RETRY_MS), () => {
      const waiting = this.requests.get(id);
      if (waiting && this.welcome) this._say(waiting.opcode, waiting.said);
    });
  }

  // -- requests ------------------------------------------------------------------------------------

  _newId() {
    this._number += 1;
    return `${this._prefix}-${this._number}`;
  }

  _request(opcode, rest) {
    const id = this._newId();
    const said = {id, ...rest};
    const answer = new Promise((resolve, reject) => {
      if (this._ended) reject(new ClientClosed(0, "closed"));
      this.requests.set(id, {opcode, said, resolve, reject});
    });
    answer.id = id;
    // Without a connection it is sent after the next WELCOME.
    if (this.welcome) this._say(opcode, said);
    return answer;
  }

  _settle(id, value) {
    const waiting = this.requests.get(id);
    this.requests.delete(id);
    if (waiting) waiting.resolve({id, value});
  }

  _reject(id, failure) {
    const waiting = this.requests.get(id);
    this.requests.delete(id);
    if (waiting) waiting.reject(failure);
  }

  _say(opcode, said) {
    const socket = this._socket;
    if (socket && socket.readyState === 1) socket.send(JSON.stringify([opcode, said]));
  }

  // -- helpers -------------------------------------------------------------------------------------

  _after(ms, act) {
    const timer = setTimeout(() => {
      this._timers.delete(timer);
      if (!this._ended) act();
    }, Math.max(0, Math.min(ms, 2 ** 31 - 1)));
    this._timers.add(timer);
  }

  _tell(state) {
    this.state = state;
    this._emit("state", state);
  }

  _emit(what, value) {
    for (const listener of this.listeners.get(what) || []) listener(value);
  }

  _end(why) {
    if (this._ended) return;
    this._ended = true;
    for (const timer of this._timers) clearTimeout(timer);
    const socket = this._socket;
    this._socket = null;
    this.welcome = null;
    if (socket) socket.close(1000);
    if (this._refused) this._refused(why);
    for (const id of [...this.requests.keys()]) this._reject(id, why);
    this._emit("closed", why);
    this._tell("closed");
  }
}
