// npm run model: every reachable state of the table of moves, and services that are broken on purpose. docs/model.md.
import { parseArgs } from 'node:util'
import { deliveryModel, type DeliveryOptions } from './delivery.ts'
import { explore, type Explored } from './explore.ts'
import { variants } from './variants.ts'

const help = `npm run model -- [options]

Explores every state that a delivery and all who touch it can reach, and checks the properties of docs/model.md in each. Then it explores
services that are broken on purpose: each must be found. Exit 0: all properties hold, and all that is broken was found. 1: not so.

  --variants  only what is broken on purpose
  --nightly   larger models, more faults at once: about half an hour
  --seed N    another order of the table of states
  --help`

const options: readonly DeliveryOptions[] = [
  { needsReceipt: false, tries: 2, mostAttempts: 3, faults: ['lostAnswer'] },
  { needsReceipt: false, tries: 1, mostAttempts: 2, faults: ['crash', 'jobAgain', 'operator'] },
  { needsReceipt: true, tries: 1, mostAttempts: 2, faults: ['crash', 'operator', 'lostAnswer'] },
  { needsReceipt: true, tries: 1, mostAttempts: 2, faults: ['declaredDead', 'jobAgain'] }
]
const nightly: readonly DeliveryOptions[] = [
  { needsReceipt: true, tries: 1, mostAttempts: 3, faults: ['declaredDead'] },
  { needsReceipt: false, tries: 2, mostAttempts: 4, faults: ['crash', 'lostAnswer', 'jobAgain'] },
  { needsReceipt: true, tries: 2, mostAttempts: 3, faults: ['declaredDead', 'lostAnswer', 'operator'] }
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
  const chosen = values.variants ? [] : values.nightly ? [...options, ...nightly] : options
  for (const one of chosen) {
    const model = deliveryModel(one)
    const name = `${model.name}, ${one.tries} tries, ${one.mostAttempts} attempts, ${one.faults.join(', ') || 'no fault'}`
    const found = timed(name, () => explore(model, { seed, mostStates: 50_000_000 }))
    if (found.fault) {
      wrong++
      console.log(`  BROKEN: ${found.fault.property}`)
      for (const line of found.fault.trace) console.log(`    ${line}`)
    }
  }
  for (const { name, model, breaks } of variants) {
    const { fault } = timed(name, () => explore(model, { seed }))
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
