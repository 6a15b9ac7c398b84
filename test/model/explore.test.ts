import t from 'tap'
import { explore, type Model } from '../../model/explore.ts'
import { variants } from '../../model/variants.ts'

/** A counter from 0 that may take one step or two, up to `most`. */
const counter = (most: number, more: Partial<Model<number>> = {}): Model<number> => ({
  name: 'counter',
  size: 1,
  initial: 0,
  pack(state, into) {
    into[0] = state
  },
  unpack: bytes => bytes[0] ?? 0,
  steps(state, to) {
    if (state + 1 <= most) to('one', state + 1)
    if (state + 2 <= most) to('two', state + 2)
  },
  violation: () => undefined,
  hasEnded: state => state === most,
  ...more
})

t.test('every state is reached once, and the shortest way to a fault is told', async t => {
  t.match(explore(counter(200)), { states: 201, fault: undefined })
  t.same(explore(counter(200, { violation: state => (state === 5 ? 'no five' : undefined) })).fault, {
    property: 'no five',
    trace: ['one', 'two', 'two']
  })
})

t.test('a state from which no end is reachable is found, also if a fault would lead out of it', async t => {
  const isStuck = counter(9, {
    steps(state, to) {
      if (state < 7) to('on', state + 1)
      else to('luck', 9, true)
    }
  })
  t.match(explore(isStuck).fault, { property: /an end is reachable/, trace: { length: 0 } })
  t.match(explore(counter(9, { steps: (state, to) => to('round', (state + 1) % 5) })).fault, {
    property: /an end is reachable/
  })
})

t.test('a model that is too large is an error', async t => {
  t.throws(() => explore(counter(200), { mostStates: 100 }), /counter has more than 100 states/)
})

t.test('what each service that is broken on purpose breaks is found', async t => {
  t.ok(variants.length >= 8)
  for (const { name, breaks, ...variant } of variants) {
    const { fault } = variant.explore()
    t.ok(fault?.property.startsWith(breaks), `${name}: ${fault?.property}`)
  }
})
