import { moveNames, moves, states, type MoveName, type Rule } from './transitions.ts'

const rules: Readonly<Record<MoveName, Rule>> = moves

/** The text of docs/states.md, generated from `moves`. */
export function printStates(): string {
  const rows = moveNames.map(name => {
    const { from, to, tries, clock, who, when } = rules[name]
    const change = tries === 'anew' ? 'all again' : tries === 0 ? '' : tries > 0 ? '+1' : '−1'
    return `| \`${name}\` | ${from.join(', ')} | ${to} | ${change} | ${clock ?? ''} | ${who} | ${when} |`
  })
  const matrix = states.map(
    state =>
      `| ${state} | ${moveNames.map(name => (rules[name].from.includes(state) ? rules[name].to : '·')).join(' | ')} |`
  )
  return [
    '# The states of a delivery',
    '',
    'Generated from `src/domain/transitions.ts` by `npm run generate`. Do not edit.',
    '',
    'A delivery is SENDING, HANDLED, FAILED or DELETED. While SENDING it has a phase and always a clock,',
    '`next_action_at`. Each change is one of these moves. Its guard is the state it starts from and the attempt',
    'number. The SQL statement that writes also checks the guard: a late writer changes no row.',
    '',
    '| move | from | to | tries left | clock | who | when |',
    '|---|---|---|---|---|---|---|',
    ...rows,
    '',
    'WAITING: it waits for its time, or for room. IN_FLIGHT: a process has claimed it; it may not have been sent yet.',
    'AWAITING_RECEIPT: it is delivered, and its receipt has not come.',
    'BLOCKED: it waits for other tasks, by `after`, or for its turn, by `orderingKey`. Its clock is its deliverBefore, or the year 9999.',
    'A delivery with an `orderingKey` has a `position`. Below zero it is out of order: never BLOCKED, never a head. `repeat` makes it so,',
    'and so does passing a FAILED one. Of one downstream and key at most one above zero is WAITING, IN_FLIGHT or AWAITING_RECEIPT.',
    '`receive` accepts any attempt of the current round. Every other move accepts only the current attempt.',
    'A worker ends only what is IN_FLIGHT, and a receipt only a delivery whose round had its attempt.',
    'A move to FAILED writes its alarm in the same statement. Every move from FAILED resolves it.',
    '',
    '## State × move',
    '',
    `| from | ${moveNames.join(' | ')} |`,
    `|---|${moveNames.map(() => '---').join('|')}|`,
    ...matrix,
    ''
  ].join('\n')
}
