// Explores every reachable state of a model, breadth first: the trace to a fault is a shortest one.

/** A state is packed into `size` bytes, so that millions fit into memory. */
export interface Model<State> {
  name: string
  size: number
  initial: State
  pack(state: State, into: Uint8Array): void
  unpack(bytes: Uint8Array): State
  /** Calls `to` with each next state. `label` says what happened, for a trace. `isFault`: the world need not go this way. */
  steps(state: State, to: (label: string, next: State, isFault?: boolean) => void): void
  /** The property that does not hold in this state. */
  violation(state: State): string | undefined
  /** From every state one of these must be reachable without a fault. */
  hasEnded(state: State): boolean
}

export interface Explored {
  states: number
  /** Steps of the longest of the shortest ways to a state. */
  depth: number
  fault?: { property: string; trace: string[] }
}

export interface Options {
  /** Gives up beyond it: a model that is too large is a mistake. */
  mostStates?: number
  /** Another order of the table of states: another chance to find a mistake of the explorer itself. */
  seed?: number
}

export function explore<State>(
  model: Model<State>,
  { mostStates = 5_000_000, seed = 0 }: Options = {}
): Explored {
  const store = stateStore(model.size, seed)
  const packed = new Uint8Array(model.size)
  const parents = growing(1 << 16)
  const edges = growing(1 << 16)
  const add = (state: State, parent: number): number => {
    model.pack(state, packed)
    const { id, isNew } = store.add(packed)
    if (isNew) parents.push(parent)
    return id
  }
  const stateOf = (id: number): State => model.unpack(store.read(id))

  /** The labels on the way to a state. They are not kept: the steps are taken again. */
  function traceTo(id: number): string[] {
    const way: number[] = []
    for (let at = id; at >= 0; at = parents.at(at)) way.unshift(at)
    return way.slice(1).map((to, n) => {
      let found = '?'
      model.steps(stateOf(way[n] ?? 0), (label, next) => {
        model.pack(next, packed)
        if (store.find(packed) === to) found = label
      })
      return found
    })
  }

  add(model.initial, -1)
  let depth = 0
  let layerEnd = 1
  for (let id = 0; id < store.count(); id++) {
    if (id === layerEnd) {
      depth++
      layerEnd = store.count()
    }
    const state = stateOf(id)
    const property = model.violation(state)
    if (property !== undefined)
      return { states: store.count(), depth, fault: { property, trace: traceTo(id) } }
    model.steps(state, (_label, next, isFault = false) => {
      const to = add(next, id)
      if (isFault || to === id) return
      edges.push(to)
      edges.push(id)
    })
    if (store.count() > mostStates) throw new Error(`${model.name} has more than ${mostStates} states`)
  }
  const stuck = firstStuck(store.count(), edges, id => model.hasEnded(stateOf(id)))
  if (stuck === undefined) return { states: store.count(), depth }
  const property = 'an end is reachable without a further fault'
  return { states: store.count(), depth, fault: { property, trace: traceTo(stuck) } }
}

/** A model of whatever states, ready to be explored. */
export interface Explorable {
  name: string
  explore(options?: Options): Explored
}
export const explorable = <State>(model: Model<State>): Explorable => ({
  name: model.name,
  explore: options => explore(model, options)
})

/** The first state from which no end is reachable: what the ends reach backwards, and the rest. */
function firstStuck(
  count: number,
  edges: ReturnType<typeof growing>,
  isEnd: (id: number) => boolean
): number | undefined {
  // The edges by their target: a list for each in one array.
  const starts = new Int32Array(count + 1)
  for (let at = 0; at < edges.length(); at += 2)
    starts[edges.at(at) + 1] = (starts[edges.at(at) + 1] ?? 0) + 1
  for (let id = 0; id < count; id++) starts[id + 1] = (starts[id + 1] ?? 0) + (starts[id] ?? 0)
  const next = starts.slice()
  const sources = new Int32Array(edges.length() / 2)
  for (let at = 0; at < edges.length(); at += 2) {
    const target = edges.at(at)
    const place = next[target] ?? 0
    next[target] = place + 1
    sources[place] = edges.at(at + 1)
  }
  const canEnd = new Uint8Array(count)
  const queue: number[] = []
  for (let id = 0; id < count; id++) {
    if (!isEnd(id)) continue
    canEnd[id] = 1
    queue.push(id)
  }
  for (let id = queue.pop(); id !== undefined; id = queue.pop())
    for (let place = starts[id] ?? 0; place < (starts[id + 1] ?? 0); place++) {
      const source = sources[place] ?? 0
      if (canEnd[source]) continue
      canEnd[source] = 1
      queue.push(source)
    }
  const found = canEnd.indexOf(0)
  return found < 0 ? undefined : found
}

/** Packed states by number, each once. A hash finds the place; the bytes decide. */
function stateStore(size: number, seed: number) {
  let bytes = new Uint8Array(size << 16)
  let table = new Int32Array(1 << 18).fill(-1)
  let count = 0

  const hashOf = (from: Uint8Array, start: number): number => {
    let hash = 0x811c9dc5 ^ seed
    for (let at = 0; at < size; at++) hash = Math.imul(hash ^ (from[start + at] ?? 0), 0x01000193)
    hash = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b)
    return (hash ^ (hash >>> 13)) >>> 0
  }
  const isAt = (id: number, packed: Uint8Array): boolean => {
    const start = id * size
    for (let at = 0; at < size; at++) if (bytes[start + at] !== packed[at]) return false
    return true
  }
  /** The place in the table: of this state, or the free one for it. */
  const placeOf = (packed: Uint8Array): number => {
    let place = hashOf(packed, 0) & (table.length - 1)
    for (let id = table[place] ?? -1; id >= 0; id = table[place] ?? -1) {
      if (isAt(id, packed)) break
      place = (place + 1) & (table.length - 1)
    }
    return place
  }
  const grow = (): void => {
    table = new Int32Array(table.length * 2).fill(-1)
    for (let id = 0; id < count; id++) {
      let place = hashOf(bytes, id * size) & (table.length - 1)
      while ((table[place] ?? -1) >= 0) place = (place + 1) & (table.length - 1)
      table[place] = id
    }
  }
  return {
    count: () => count,
    read: (id: number): Uint8Array => bytes.subarray(id * size, (id + 1) * size),
    find: (packed: Uint8Array): number => table[placeOf(packed)] ?? -1,
    add(packed: Uint8Array): { id: number; isNew: boolean } {
      const place = placeOf(packed)
      const known = table[place] ?? -1
      if (known >= 0) return { id: known, isNew: false }
      if ((count + 1) * size > bytes.length) {
        const larger = new Uint8Array(bytes.length * 2)
        larger.set(bytes)
        bytes = larger
      }
      bytes.set(packed, count * size)
      table[place] = count
      const id = count++
      if (count * 2 > table.length) grow()
      return { id, isNew: true }
    }
  }
}

/** A list of numbers that may have many millions. */
function growing(room: number) {
  let values = new Int32Array(room)
  let length = 0
  return {
    length: () => length,
    at: (index: number): number => values[index] ?? -1,
    push(value: number): void {
      if (length === values.length) {
        const larger = new Int32Array(values.length * 2)
        larger.set(values)
        values = larger
      }
      values[length++] = value
    }
  }
}
