import { useState } from 'preact/hooks'
import { get, post, remove } from '../api.ts'
import { Act, AskAct, copy, say } from '../acts.tsx'
import { Field, Heading, Shown, Table, Time } from '../parts.tsx'
import { useLoaded } from '../loaded.ts'
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
  const loaded = useLoaded('keys', () => get<{ apiKeys: Key[] }>('/api-keys'), { kinds: ['audit'] })
  const [made, setMade] = useState('')
  return (
    <>
      <Heading title={texts.value.pages.keys} />
      {made === '' ? null : (
        <section class="card" role="status">
          <p>{words.once}</p>
          <pre tabIndex={0}>{made}</pre>
          <Act run={() => copy(made)}>{texts.value.common.copy}</Act>
        </section>
      )}
      <Make
        made={key => {
          setMade(key)
          loaded.reload()
        }}
      />
      <Shown loaded={loaded}>
        {({ apiKeys }) => (
          <Table
            label={texts.value.pages.keys}
            rows={apiKeys}
            keyOf={row => row.id}
            columns={[
              { name: words.name, head: true, cell: row => <b>{row.name}</b> },
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
                      about={row.name}
                      sure={words.sureRevoke}
                      run={() => remove(`/api-keys/${encodeURIComponent(row.id)}`).then(loaded.reload)}
                    />
                  )
              }
            ]}
          />
        )}
      </Shown>
    </>
  )
}

function Make({ made }: { made: (key: string) => void }) {
  const words = texts.value.keys
  const [name, setName] = useState('')
  const [codes, setCodes] = useState('')
  const [scopes, setScopes] = useState<string[]>(['ops:read'])
  return (
    <form
      class="card line-form"
      onSubmit={event => {
        event.preventDefault()
        const messageCodes = codes.split(/[\s,]+/).filter(Boolean)
        post<{ key: string }>('/api-keys', {
          name,
          scopes,
          ...(messageCodes.length === 0 ? {} : { messageCodes })
        }).then(
          ({ key }) => {
            setName('')
            made(key)
          },
          (error: Error) => say(error.message, true)
        )
      }}
    >
      <Field name={words.name} value={name} set={setName} required />
      <fieldset>
        <legend>{words.scopes}</legend>
        {(session.value.scopes ?? []).map(scope => (
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
      <Field name={words.codesHint} value={codes} set={setCodes} />
      <button type="submit" class="main">
        {words.make}
      </button>
    </form>
  )
}
