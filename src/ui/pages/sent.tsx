// What an attempt has sent, and what would be sent now.
import { useState } from 'preact/hooks'
import { get } from '../api.ts'
import { Act, copy } from '../acts.tsx'
import { Pair } from '../parts.tsx'
import type { RequestNow, SentRequest } from '../shapes.ts'
import { texts } from '../state.ts'

/** The first digits of a hash. The rest opens. */
const shownDigits = 12

export function Sent({ of }: { of: SentRequest }) {
  const words = texts.value.task
  return (
    <>
      <h3>{of.computed ? words.sentComputed : words.sent}</h3>
      <dl class="pairs">
        <Facts of={of} />
        {of.headerNames === undefined ? null : (
          <Pair name={words.sentHeaders} value={of.headerNames.join(', ')} />
        )}
        {of.unknown === undefined ? null : (
          <Pair name={words.sentUnknown} value={words.sentWhy[of.unknown] ?? of.unknown} />
        )}
      </dl>
    </>
  )
}

function Facts({ of }: { of: Omit<SentRequest, 'headerNames'> }) {
  const words = texts.value.task
  const { sha256 } = of
  return (
    <>
      {of.target === undefined ? null : (
        <Pair
          name={of.transport ?? ''}
          value={of.method === undefined ? of.target : `${of.method} ${of.target}`}
        />
      )}
      {of.bytes === undefined ? null : <Pair name={words.bodyBytes} value={String(of.bytes)} />}
      {sha256 === undefined ? null : (
        <Pair
          name="SHA-256"
          value={
            <details>
              <summary>
                <code>{sha256.slice(0, shownDigits)}…</code>
              </summary>
              <code>{sha256}</code> <Act run={() => copy(sha256)}>{texts.value.common.copy}</Act>
            </details>
          }
        />
      )}
      <Pair name={words.handlerVersion} value={of.handlerVersion} />
    </>
  )
}

/** A button that shows it below. It is read again each time. */
export function SentNow({ path, downstream }: { path: string; downstream: string }) {
  const words = texts.value.task
  const [now, setNow] = useState<RequestNow | null>(null)
  const toggle = async (): Promise<void> =>
    setNow(now ? null : await get(`${path}/deliveries/${encodeURIComponent(downstream)}/request`))
  return (
    <>
      <div class="acts">
        <Act
          run={toggle}
          label={texts.value.common.labelled(words.sentNow, downstream)}
          expanded={now !== null}
        >
          {words.sentNow}
        </Act>
      </div>
      {now === null ? null : (
        <>
          {now.error === undefined ? null : <p class="failed">{now.error}</p>}
          <dl class="pairs">
            <Facts of={now} />
          </dl>
          <pre tabIndex={0}>
            {[
              ...now.headers.map(pair => pair.join(': ')),
              '',
              (now.body ?? '') + (now.truncated ? '…' : '')
            ].join('\n')}
          </pre>
        </>
      )}
    </>
  )
}
