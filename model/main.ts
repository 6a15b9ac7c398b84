// npm run model: every reachable state of the table of moves, and services that are broken on purpose. docs/model.md.
import { parseArgs } from 'node:util'
import { deliveryModel, type DeliveryOptions } from './delivery.ts'
import { explorable, type Explorable, type Explored } from './explore.ts'
import { halfModel } from './half-message.ts'
import { orderingModel } from './ordering.ts'
import { variants } from './variants.ts'

const help = `npm run model -- [options]

Explores every state that a delivery, a key and a half message can reach with all who touch them, and checks the properties of docs/model.md in each. Then it explores
services that are broken on purpose: each must be found. Exit 0: all properties hold, and all that is broken was found. 1: not so.

  --variants  only what is broken on purpose
  --nightly   larger models, more faults at once: about half an hour
  --seed N    another order of the table of states
  --help`

const deliveries: readonly DeliveryOptions[] = [
  { needsReceipt: false, tries: 2, mostAttempts: 3, faults: ['lostAnswer'] },
  { needsReceipt: false, tries: 1, mostAttempts: 2, faults: ['crash', 'jobAgain', 'operator'] },
  { needsReceipt: true, tries: 1, mostAttempts: 2, faults: ['crash', 'operator', 'lostAnswer'] },
  { needsReceipt: true, tries: 1, mostAttempts: 2, faults: ['declaredDead', 'jobAgain'] }
]
const models: readonly Explorable[] = [
  explorable(halfModel()),
  ...[false, true].map(skips => explorable(orderingModel({ skips, crashes: 2, acts: 2 }))),
  ...deliveries.map(one => explorable(deliveryModel(one)))
]
const larger: readonly DeliveryOptions[] = [
  { needsReceipt: true, tries: 1, mostAttempts: 3, faults: ['declaredDead'] },
  { needsReceipt: false, tries: 2, mostAttempts: 4, faults: ['crash', 'lostAnswer', 'jobAgain'] },
  { needsReceipt: true, tries: 2, mostAttempts: 3, faults: ['declaredDead', 'lostAnswer', 'operator'] }
]
const nightly: readonly Explorable[] = [
  ...[false, true].map(skips => explorable(orderingModel({ skips, crashes: 3, acts: 3 }))),
  ...larger.map(one => explorable(deliveryModel(one)))
]

process.exitCode = main()

function main(): number {
  const { values } = parseArgs({
    options: {
      variants: { type: 'boolean' },
      nightly: { type: 'boolean' },
      seed: { type: 'string' },
      help: { type: 'boolean', short: 'h' }
    }
  })
  if (values.help) {
    console.log(help)
    return 0
  }
  const seed = Number(values.seed ?? 0)
  let wrong = 0
  const chosen = values.variants ? [] : values.nightly ? [...models, ...nightly] : models
  for (const one of chosen) {
    const found = timed(one.name, () => one.explore({ seed, mostStates: 50_000_000 }))
    if (found.fault) {
      wrong++
      console.log(`  BROKEN: ${found.fault.property}`)
      for (const line of found.fault.trace) console.log(`    ${line}`)
    }
  }
  for (const { name, breaks, ...variant } of variants) {
    const { fault } = timed(name, () => variant.explore({ seed }))
    if (fault?.property.startsWith(breaks))
      console.log(`  found in ${fault.trace.length} steps: ${fault.property}`)
    else {
      wrong++
      console.log(`  NOT FOUND: ${fault ? `only ${fault.property}` : `nothing breaks ${breaks}`}`)
    }
  }
  console.log(wrong === 0 ? 'all properties hold, and every broken variant was found' : `${wrong} are wrong`)
  return wrong === 0 ? 0 : 1
}

function timed(name: string, run: () => Explored): Explored {
  const began = performance.now()
  const found = run()
  const seconds = ((performance.now() - began) / 1000).toFixed(1)
  console.log(`${name}: ${found.states.toLocaleString('en')} states, ${found.depth} steps deep, ${seconds} s`)
  return found
}
