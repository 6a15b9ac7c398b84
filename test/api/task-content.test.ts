import fc from 'fast-check'
import t from 'tap'
import { contentOf } from '../../src/api/task-content.ts'
import { knownAmong, readTaskRequest } from '../../src/api/task-request.ts'
import type { TaskBody } from '../../src/api/requests.ts'
import { isSameContent } from '../../src/domain/content.ts'
import { readJson } from '../../src/json/reader.ts'

/** The content of a posted text. */
function posted(text: string) {
  const read = readJson(Buffer.from(text), 'task')
  const { taskRequest } = readTaskRequest(
    { value: read.value, read, index: 0, pointer: '' },
    {
      caller: { name: 'test', messageCodes: null, scopes: [] },
      handlers: new Map(),
      refusal: () => undefined,
      traceparent: null,
      now: new Date('2026-11-28T00:00:00Z')
    }
  )
  return taskRequest
}

/** Posts, and the hashes that version 1.0.0 stored for them. */
const golden: [text: string, contentHash: string][] = [
  [
    '{"messageCode":"order.paid","messageBody":{"orderNo":"A-1","cent":4200}}',
    'ZK1R5gMZT4RBbkTM4jPBu0TAb5qj4qOw_znqREBtjYw'
  ],
  [
    '{"taskNo":"order-1","messageCode":"order.paid","messageBody":{"orderNo":"A-1","cent":4200}}',
    'ZK1R5gMZT4RBbkTM4jPBu0TAb5qj4qOw_znqREBtjYw'
  ],
  [
    '{"messageCode":"order.paid","sceneType":"","messageBody":{"a":1}}',
    'Pm_tjAKbrUdq1BTKG4wHxULs94hRbaeq2ekE7TtGz1c'
  ],
  [
    '{"messageCode":"order.paid","sceneType":"vip","messageBody":{"a":1}}',
    'lUHRR6KhVZEGSQf_wTEUD9ssnmS0-zwiZjgkCnib1yI'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"delay":0}',
    'OgL74CGroqvnpkBawgbo8zVUZTdIPHjuCUSDZHJ6zXo'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"delay":60000}',
    'eU70OuuMtniz6MRRbDtBLol_ZMFZ6CnaPTqMJrxjtcw'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"extend":{}}',
    'uRZ1KA7ASHOnqFImJxHlJnCUXCBvxfMJZKyS5-QdULE'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"extend":{"z":[1,{"b":null,"a":"\\u0061"}],"a":0.1}}',
    'WZ63BAIq1auOHrq70CDAm9RFcaSIt0L5ld3lkRM85p0'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"deliverStartTime":"2026-12-01T08:00:00Z"}',
    'BxUbkhszlg1TTAxAcahOqx-PV-isH-OFzB-22FKrqyg'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"deliverStartTime":"2026-12-01T08:00:00.000Z"}',
    'US6G-IFwvGUNEP0jokLbFKpYHYnhmU_zL1HksL3cWjU'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"deliverStartTime":"2026-12-01T16:00:00+08:00"}',
    'OO5eT0EdQIGP2H03tkTUrYAfI8sZ1v2q_QWmxR-2l-0'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"deliverStartTime":"2026-12-01t08:00:00.0001z","deliverBefore":"2026-12-02T08:00:00Z"}',
    'i1XaBaoxkjV4KD_m6VME1divK4Fora70M9gHi_nKnaA'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"prepared":false,"uniqueBiz":false,"bizType":"order","bizKey":"1"}',
    'Z1zWImDZuz2cgsck2Pwd1DoEHUX-cwBN3hKamNdioY0'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"uniqueBiz":true,"bizType":"order","bizKey":"1"}',
    'vIuI2uak6DsE6ubsihbpGvuFciTe_iExscNxwS9rcWo'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"prepared":true}',
    'CQCrTAh6-aoltT3ydyfWDZr-nQqI-1AlR403qgsoioI'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"prepared":true,"checkBack":{}}',
    'I3N9GyZY9wvSx_SJcEU0Mn51ne1banoywGBdPXTaHEs'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"prepared":true,"checkBack":{"after":"60s"}}',
    'py5d6WTyrtyJWMrqnLUM6vjJGFMnb5QSrMnuxYKv_xE'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"prepared":true,"checkBack":{"after":"35s"}}',
    'g8SHyTe5hUB_hLAaxK8YzCNM1h1LixUWdWr_bsNpH04'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"after":["t-2","t-1","t-2"]}',
    'HHgxM0BpP9IquRmps0sBVN0KAWKkwu6o7Qjs1BdE4rU'
  ],
  [
    '{"messageCode":"order.paid","messageBody":{"a":1},"needCallback":false,"retryTimes":3,"orderingKey":"k 订","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
    'DPn19BkufesDoxUrR2v6l3snzQEBqThPZTlCT6URjV8'
  ],
  [
    '{"messageCode":"order.paid","messageBody":"订单\\u0020 1.0"}',
    'ahVahhfFOxUAk4Ay9f1En-Ejs8wmV0u5LhAgzdoZki4'
  ],
  [
    '{"messageCode":"order.paid","messageBody":[1.0, 1e2, 9007199254740993]}',
    'aRSqtS-PZcpwPtA_D7yMo57cjlWn_PtqRewFtk9IpFU'
  ]
]

t.test('a repeat of a task that version 1.0.0 stored has the hash that it stored', async t => {
  for (const [text, contentHash] of golden) t.equal(posted(text).contentHash, contentHash, text)
})

const body = '{"a":1}'
const task = (more: object): TaskBody => ({ messageCode: 'order.paid', messageBody: { a: 1 }, ...more })
const content = (more: object) => contentOf(task(more), body)

/** The first of each line is the normal form. */
const spellings: object[][] = [
  [{}, { sceneType: '' }, { delay: 0 }, { extend: {} }, { prepared: false, uniqueBiz: false }],
  [
    { deliverStartTime: '2026-12-01T08:00:00.000Z' },
    { deliverStartTime: '2026-12-01T08:00:00Z' },
    { deliverStartTime: '2026-12-01t08:00:00z' },
    { deliverStartTime: '2026-12-01T08:00:00+00:00' },
    { deliverStartTime: '2026-12-01T08:00:00.000000-00:00' },
    { deliverStartTime: '2026-12-01T16:00:00+08:00' },
    { deliverStartTime: '2026-12-01T07:59:59.999000001Z' }
  ],
  [{ deliverBefore: '2026-12-01T08:00:00.001Z' }, { deliverBefore: '2026-12-01T09:00:00.0000001+01:00' }],
  [{ after: ['t-1', 't-2'] }, { after: ['t-2', 't-1'] }, { after: ['t-1', 't-2', 't-1'] }],
  [
    { prepared: true },
    { prepared: true, checkBack: {} },
    { prepared: true, checkBack: { after: '35s' } },
    { prepared: true, checkBack: { after: '35000ms' } }
  ],
  [
    { prepared: true, checkBack: { after: '1m' } },
    { prepared: true, checkBack: { after: '60s' } },
    { prepared: true, checkBack: { after: '60000ms' } },
    { prepared: true, checkBack: { after: '1.000m' } }
  ],
  [
    { bizType: 'order', bizKey: '1' },
    { bizType: 'order', bizKey: '1', uniqueBiz: false }
  ]
]

t.test('a default, a time, a duration and a set may be written in any way', async t => {
  for (const [normal = {}, ...others] of spellings) {
    const first = content(normal)
    t.equal(first.contentNormal, null, `${JSON.stringify(normal)}: the normal form costs no second hash`)
    for (const other of others) {
      const second = content(other)
      t.ok(second.contentNormal, JSON.stringify(other))
      t.ok(isSameContent(first, second) && isSameContent(second, first), JSON.stringify(other))
    }
  }
})

const differences: object[] = [
  {},
  { sceneType: ' ' },
  { delay: 1 },
  { extend: { a: {} } },
  { needCallback: false },
  { needCallback: true },
  { retryTimes: 1 },
  { orderingKey: '0' },
  { bizType: 'order', bizKey: '1' },
  { bizType: 'order', bizKey: '1', uniqueBiz: true },
  { deliverStartTime: '2026-12-01T08:00:00.000Z' },
  { deliverStartTime: '2026-12-01T08:00:00.0001Z' },
  { deliverStartTime: '2026-12-01T08:00:00+08:00' },
  { deliverBefore: '2026-12-01T08:00:00Z' },
  { prepared: true },
  { prepared: true, checkBack: { after: '36s' } },
  { after: ['t-1'] },
  { after: ['t-1', 't-2'] }
]

t.test('what a task is told to do in another way is another content', async t => {
  for (const [at, one] of differences.entries())
    for (const other of differences.slice(0, at))
      t.notOk(
        isSameContent(content(one), content(other)),
        `${JSON.stringify(one)} and ${JSON.stringify(other)}`
      )
  t.notOk(isSameContent(contentOf(task({}), body), contentOf(task({}), '{"a": 1}')), 'the body is its text')
})

t.test(
  'a task of version 1.0 is known by its own spelling, and by the normal form if it had that',
  async t => {
    const stored = (more: object) => ({ contentHash: content(more).contentHash, contentNormal: null })
    const [z, iso] = ['2026-12-01T08:00:00Z', '2026-12-01T08:00:00.000Z']
    t.ok(isSameContent(stored({ deliverStartTime: z }), content({ deliverStartTime: z })))
    t.ok(isSameContent(stored({ deliverStartTime: iso }), content({ deliverStartTime: z })))
    t.notOk(isSameContent(stored({ deliverStartTime: z }), content({ deliverStartTime: iso })))
  }
)

t.test('a late repeat in another spelling is known, also to a key of one messageCode', async t => {
  const contents = async () => new Map([['late', content({})]])
  const late = (more: string) =>
    posted(`{"taskNo":"late","messageCode":"order.paid","messageBody":${body}${more}}`)
  for (const messageCodes of [null, ['order.paid']]) {
    const caller = { name: 'shop', messageCodes, scopes: [] }
    const isKnown = await knownAmong({ contents }, caller, [late('')])
    t.ok(isKnown(late('')) && isKnown(late(',"extend":{},"delay":0')))
    t.equal(isKnown(late(',"delay":1')), messageCodes === null, 'another content shows nothing to such a key')
  }
})

t.test('an instant has one normal form, however precise and in whatever zone it is written', async () => {
  const time = fc.record({
    ms: fc.integer({ min: 0, max: 4_000_000_000_000 }),
    finer: fc.constantFrom('', '0', '000000000'),
    offset: fc.integer({ min: -23 * 60 - 59, max: 23 * 60 + 59 }),
    isLower: fc.boolean()
  })
  fc.assert(
    fc.property(time, ({ ms, finer, offset, isLower }) => {
      const minutes = Math.abs(offset)
      const [hh, mm] = [Math.floor(minutes / 60), minutes % 60].map(n => String(n).padStart(2, '0'))
      const local = new Date(ms + offset * 60_000).toISOString().replace('Z', '')
      if (local.startsWith('-') || local.startsWith('1969')) return
      const text = `${local}${finer}${offset < 0 ? '-' : '+'}${hh}:${mm}`
      const written = content({ deliverStartTime: isLower ? text.toLowerCase() : text })
      const iso = content({ deliverStartTime: new Date(ms).toISOString() })
      return isSameContent(written, iso) && iso.contentNormal === null
    })
  )
})
