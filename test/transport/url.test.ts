import fc from 'fast-check'
import t from 'tap'
import { originsFrom, url } from '../../src/transport/url.ts'

const warehouse = 'https://warehouse.example:8443/base'
originsFrom({
  WAREHOUSE_URL: warehouse,
  BARE: 'http://bare.example',
  SLASH: 'http://slash.example/',
  OTHER: 'not a url'
})

t.test('a handler builds its address from env, literals and data', async t => {
  t.equal(String(url`${warehouse}/orders/${'a/b?c#d'}/paid`), `${warehouse}/orders/a%2Fb%3Fc%23d/paid`)
  t.equal(
    String(url`https://api.example.com/x?id=${7}&big=${10n}&on=${true}`),
    'https://api.example.com/x?id=7&big=10&on=true'
  )
  t.equal(String(url`${'http://slash.example/'}/orders`), 'http://slash.example/orders', 'not two slashes')
  t.equal(String(url`${warehouse}`), warehouse)
  t.equal(
    String(url`${url`https://api.example.com/v1`}/x/${'y'}`),
    'https://api.example.com/v1/x/y',
    'one url may extend another'
  )
})

t.test(
  'a value that is missing is told with its place in the URL and in the handler, without a secret',
  async t => {
    const missing = { id: undefined }
    t.throws(() => url`${warehouse}/orders/${missing.id}/paid`, {
      message:
        /^url: placeholder 2 is undefined, not text: it follows \/orders\/, in url\.test\.\w+, line \d+$/
    })
    t.throws(() => url`https://api.example.com/x?token=s3cret&id=${null}`, {
      message: /^url: placeholder 1 is null, not text: it follows &id=, in url\.test\.\w+, line \d+$/
    })
  }
)

t.test("whatever data a producer posts, scheme, host and port stay the operator's", async () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.constantFrom(
          '@evil.example',
          ':80@evil.example',
          '.evil.example',
          '//evil.example',
          '\\evil.example',
          '%2f%2fevil',
          '#',
          '?',
          '\t\n',
          '::',
          '..'
        )
      ),
      hostile => {
        for (const build of [
          () => url`${warehouse}/orders/${hostile}/paid`,
          () => url`${'http://bare.example'}/${hostile}`,
          () => url`https://api.example.com/a?b=${hostile}`,
          () => url`https://api.example.com/${hostile}${hostile}/x`
        ]) {
          let built: string
          try {
            built = String(build())
          } catch {
            continue // refused: nothing is sent
          }
          const { origin, pathname } = new URL(built)
          if (
            !['https://warehouse.example:8443', 'http://bare.example', 'https://api.example.com'].includes(
              origin
            )
          )
            return false
          if (origin.includes('warehouse') && !/^\/base\/orders\/[^/]*\/paid$/.test(pathname)) return false
        }
        return true
      }
    ),
    { numRuns: 2_000 }
  )
})

t.test('what could change the host is refused while the handler runs', async t => {
  const data = 'evil.example'
  t.throws(() => url`${data}/x`, 'an origin that env does not hold')
  t.throws(() => url`${'https://evil.example'}/x`)
  t.throws(() => url`${'not a url'}/x`, 'a value of env that is no origin')
  t.throws(() => url`https://${data}/x`)
  t.throws(() => url`https://api${data}/x`)
  t.throws(() => url`https://api.example.com${data}`, 'a host that goes on')
  t.throws(() => url`https://api.example.com:${data}/`)
  t.throws(() => url`${'http://bare.example'}${data}`)
  t.throws(() => url`${'http://bare.example'}@${data}/`)
  t.throws(() => url`file:///${data}`)
})

t.test('a segment of dots only, and what is no text, is refused', async t => {
  for (const dots of ['.', '..']) t.throws(() => url`${warehouse}/${dots}/x`)
  t.throws(() => url`${warehouse}/.${'.'}/x`, 'also when half of it is literal')
  t.throws(() => url`${warehouse}/%2e${'.'}/x`)
  t.equal(String(url`${warehouse}/${'...'}`), `${warehouse}/...`)
  for (const value of [undefined, null, {}, [], Symbol('x'), () => 'x'])
    t.throws(() => url`${warehouse}/${value}`)
})
