import { Heading } from '../parts.tsx'
import { texts } from '../state.ts'

/** For a key that may write and not read. */
export function NoPage() {
  return (
    <>
      <Heading title={texts.value.signIn.noPage} />
      <p>{texts.value.signIn.needsRead}</p>
    </>
  )
}
