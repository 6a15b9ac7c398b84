// The same messages for the receivers of all languages. A signature covers `id.time.body`, so only one reading of it may be right.
import { execFile, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { readVerifier } from '../../src/adapter/signature.ts'
import { verify } from '../../src/demo/receiver.ts'
import { isSigningSecret, signer } from '../../src/transport/sign.ts'
import { without } from '../support/program.ts'
import { folder } from '../support/service.ts'

interface Vector {
  title: string
  isValid: boolean
  id: string
  timestamp: string
  signature: string
  body: string
}
const { secret, vectors } = JSON.parse(readFileSync('test/consumer/signatures.json', 'utf8')) as {
  secret: string
  vectors: Vector[]
}
const wanted = vectors.map(({ title, isValid }) => `${title}: ${isValid}`)
const told = (answers: readonly unknown[]): string[] =>
  vectors.map(({ title }, at) => `${title}: ${String(answers[at]).toLowerCase()}`)
const linesOf = (text: string): string[] => text.trimEnd().split('\n')

const headersOf = ({ id, timestamp, signature }: Vector) => ({
  'webhook-id': id,
  'webhook-timestamp': timestamp,
  'webhook-signature': signature
})

t.test('ackbox/consumer takes a message only in the one reading that Ackbox has signed', async t => {
  const isSigned = readVerifier([secret])
  t.same(
    told(
      vectors.map(one =>
        isSigned({ headers: new Map(Object.entries(headersOf(one))), payload: one.body }, Infinity)
      )
    ),
    wanted
  )
})

t.test('the receiver of the demo, which is there to be copied, does the same', async t => {
  t.same(
    told(
      vectors.map(one => verify(headersOf(one), Buffer.from(one.body), secret, Number(one.timestamp) || 0))
    ),
    wanted
  )
})

t.test('the SDK for Java does the same', { skip: without('javac') }, async t => {
  const classes = folder(t)
  const files = ['sdk/java/src/main/java/ackbox/sdk/Signature.java', 'test/consumer/Signatures.java']
  await promisify(execFile)('javac', ['-d', classes, ...files])
  const base64 = (text: string): string => Buffer.from(text).toString('base64')
  const input = vectors
    .map(one => [one.id, one.timestamp, one.signature, one.body].map(base64).join(' '))
    .join('\n')
  const { stdout } = spawnSync('java', ['-cp', classes, 'ackbox.sdk.Signatures', secret], {
    input,
    encoding: 'utf8'
  })
  t.same(told(linesOf(stdout)), wanted)
})

/** Whether each is a secret, by the letters of base64 and by the bytes that they stand for. */
const secrets: [isSecret: boolean, base64: string][] = [
  [true, 'A'.repeat(32)],
  [true, 'A'.repeat(34)],
  [true, `${'A'.repeat(34)}==`],
  [true, 'A'.repeat(35)],
  [true, `${'A'.repeat(35)}=`],
  [false, 'A'.repeat(33)],
  [false, `${'A'.repeat(33)}=`],
  [false, 'A'.repeat(37)],
  [false, `${'A'.repeat(34)}=`],
  [false, `${'A'.repeat(35)}==`],
  [false, `${'A'.repeat(36)}=`],
  [false, 'A'.repeat(31)],
  [false, `${'A'.repeat(33)}-_A`],
  [false, '']
]

t.test(
  'ackbox_receiver.py does the same, and takes the same secrets',
  { skip: without('python3') },
  async t => {
    const { stdout } = spawnSync(
      'python3',
      [path.resolve('test/consumer/signatures.py'), ...secrets.map(([, base64]) => `whsec_${base64}`)],
      { encoding: 'utf8' }
    )
    const lines = linesOf(stdout)
    t.same(told(lines), wanted)
    t.same(
      lines.slice(vectors.length),
      secrets.map(([isSecret]) => (isSecret ? 'True' : 'False'))
    )
  }
)

t.test('a secret that only Node would decode is refused where it is set and where it is used', async t => {
  for (const [isSecret, base64] of secrets) {
    t.equal(isSigningSecret(`whsec_${base64}`), isSecret, `${base64.length} ${base64.slice(-3)}`)
    if (isSecret) t.doesNotThrow(() => readVerifier([`whsec_${base64}`]))
    else t.throws(() => readVerifier([`whsec_${base64}`]), /must be whsec_ and base64 of 24 bytes or more/)
  }
  t.throws(() => signer([`whsec_${'A'.repeat(33)}`]), /a signing secret must be whsec_ and base64/)
})
