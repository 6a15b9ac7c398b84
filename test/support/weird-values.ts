// Values that JavaScript lets anybody throw, return or put into an object.

const refuses = (): never => {
  throw new Error('it cannot be read')
}
const traps = Object.fromEntries(
  Object.getOwnPropertyNames(Reflect).map(name => [name, refuses])
) as ProxyHandler<object>

const withGetter = (name: string): Error =>
  Object.defineProperty(new Error('hidden'), name, { get: refuses, enumerable: true })

function loop(): Error {
  const one = new Error('', { cause: undefined })
  const two = new AggregateError([one], '')
  one.cause = two
  return one
}

/** Each is made anew: some change when they are read. */
export const weirdValues = {
  nothing: () => undefined,
  null: () => null,
  noPrototype: () => Object.assign(Object.create(null) as object, { code: 1 }),
  answer: () => ({ code: 1, toString: 1 }),
  throwingToString: () => ({ toString: refuses, [Symbol.toPrimitive]: refuses }),
  throwingMessage: () => withGetter('message'),
  throwingStack: () => withGetter('stack'),
  throwingName: () => withGetter('name'),
  throwingCause: () => withGetter('cause'),
  throwingCode: () => withGetter('code'),
  oddMessage: () => Object.assign(new Error('x'), { message: Object.create(null) as string }),
  proxy: () => new Proxy({}, traps),
  proxyOfError: () => new Proxy(new Error('inside'), traps),
  proxyOfFunction: () => new Proxy(() => {}, traps),
  revoked: () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    return proxy
  },
  // oxlint-disable-next-line unicorn/no-thenable -- as an object whose reading fails
  throwingThen: () => Object.defineProperty({}, 'then', { get: refuses }),
  rejectingThen: () => ({
    // oxlint-disable-next-line unicorn/no-thenable -- as a query builder whose connection is gone
    then: (_: unknown, reject: (err: unknown) => void) => reject(Object.create(null))
  }),
  symbol: () => Symbol('weird'),
  function: () => refuses,
  bigint: () => 1n << 4_000_000n,
  notANumber: () => Number.NaN,
  nul: () => new Error('no producer for \0'),
  halfPair: () => new Error('half \ud83d'),
  long: () => new Error('x'.repeat(50_000_000)),
  longText: () => 'y'.repeat(50_000_000),
  many: () => new AggregateError([new Error(''), Object.create(null)]),
  loop,
  date: () => new Date(Number.NaN),
  deep: () => Array.from({ length: 10_000 }).reduce<unknown>(one => [one], 1),
  wide: () => Array.from({ length: 1_000_000 }),
  bytes: () => new Uint8Array(1_000)
} satisfies { [name: string]: () => unknown }

export type WeirdName = keyof typeof weirdValues
export const weirdNames = Object.keys(weirdValues) as WeirdName[]
