import { useRef, useState } from 'preact/hooks'
import { post, remove } from '../api.ts'
import { Act, AskAct, copy, say } from '../acts.tsx'
import { Field, Heading, Time } from '../parts.tsx'
import { listOf, Rows } from '../list.tsx'
import { useList } from '../loaded.ts'
import { session, texts } from '../state.ts'

interface Key {
  id: string
  name: string
  scopes: string[]
  messageCodes: string[] | null
  createdAt: string
  revokedAt?: string | null
}

export function KeysPage() {
  const words = texts.value.keys
  const loaded = useList('keys', listOf<'apiKeys', Key>('apiKeys', '/api-keys'), {
    kinds: ['audit'],
    size: 100
  })
  const [made, setMade] = useState<Made[]>([])
  return (
    <>
      <Heading title={texts.value.pages.keys} />
      {made.length === 0 ? null : (
        <section class="card" role="status">
          <p>{words.once}</p>
          {made.map(({ id, name, key }) => (
            <div key={id}>
              <b>{name}</b> <span class="quiet">{id}</span>
              <pre tabIndex={0}>{key}</pre>
              <Act run={() => copy(key)} label={texts.value.common.labelled(texts.value.common.copy, name)}>
                {texts.value.common.copy}
              </Act>
            </div>
          ))}
        </section>
      )}
      <Make
        made={one => {
          setMade(before => [one, ...before])
          void loaded.reload()
        }}
      />
      <Rows
        title={texts.value.pages.keys}
        loaded={loaded}
        keyOf={row => row.id}
        columns={[
          {
            name: words.name,
            head: true,
            // Several keys may have one name. The audit names the key by its id.
            cell: row => (
              <>
                <b>{row.name}</b> <span class="quiet">{row.id}</span>
              </>
            )
          },
          { name: words.scopes, cell: row => row.scopes.join(' ') },
          { name: words.codes, cell: row => row.messageCodes?.join(' ') ?? words.all },
          { name: words.made, cell: row => <Time at={row.createdAt} /> },
          {
            name: ' ',
            cell: row =>
              row.revokedAt ? (
                <span class="quiet">
                  {words.revoked} <Time at={row.revokedAt} />
                </span>
              ) : (
                <AskAct
                  kind="danger"
                  name={words.revoke}
                  about={`${row.name} · ${row.id}`}
                  sure={words.sureRevoke}
                  run={() => remove(`/api-keys/${encodeURIComponent(row.id)}`).then(loaded.reload)}
                />
              )
          }
        ]}
      />
    </>
  )
}

interface Made {
  id: string
  name: string
  key: string
}

function Make({ made }: { made: (one: Made) => void }) {
  const words = texts.value.keys
  const { scopes: own = [], messageCodes: ownCodes } = session.value
  const [name, setName] = useState('')
  const [codes, setCodes] = useState('')
  const [scopes, setScopes] = useState<string[]>(own.includes('ops:read') ? ['ops:read'] : [])
  const [busy, setBusy] = useState(false)
  // A second press can come before the button is drawn disabled. It would make a second key.
  const isMaking = useRef(false)
  const make = async (): Promise<void> => {
    if (isMaking.current) return
    isMaking.current = true
    setBusy(true)
    const messageCodes = codes.split(/[\s,]+/).filter(Boolean)
    const wanted = { name, scopes, ...(messageCodes.length === 0 ? {} : { messageCodes }) }
    try {
      const { id, key } = await post<{ id: string; key: string }>('/api-keys', wanted)
      setName('')
      made({ id, name, key })
    } catch (error) {
      say((error as Error).message, true)
    }
    isMaking.current = false
    setBusy(false)
  }
  return (
    <form
      class="card line-form"
      onSubmit={event => {
        event.preventDefault()
        void make()
      }}
    >
      <Field name={words.name} value={name} set={setName} required />
      <fieldset>
        <legend>{words.scopes}</legend>
        {own.map(scope => (
          <label key={scope} class="check">
            <input
              type="checkbox"
              checked={scopes.includes(scope)}
              onChange={event =>
                setScopes(
                  event.currentTarget.checked ? [...scopes, scope] : scopes.filter(one => one !== scope)
                )
              }
            />
            {scope}
          </label>
        ))}
      </fieldset>
      <Field name={ownCodes ? words.codesHintBound : words.codesHint} value={codes} set={setCodes} />
      <button type="submit" class="main" aria-disabled={busy}>
        {words.make}
      </button>
    </form>
  )
}
