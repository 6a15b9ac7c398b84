// The texts of alarms, in each language that a channel can have.
import type { Language } from './channel-config.ts'
import type { AlarmedDelivery, AlarmMessage } from './types.ts'

type Kind = AlarmMessage['kind']

interface Texts {
  meanings: Record<Kind, string>
  /** `downstream` is empty for alarms about no downstream. */
  raisedTitle: (kind: Kind, downstream: string, count: number) => string
  resolvedTitle: (kind: Kind, downstream: string) => string
  testTitle: string
  resolvedSince: (since: string) => string
  delivery: (delivery: AlarmedDelivery) => string
  more: (count: number) => string
  openAlarms: (url: string) => string
}

const en: Texts = {
  meanings: {
    FAILED: 'The delivery has ended without success. Redeliver the task when the downstream is healthy.',
    NO_HANDLER:
      'No running worker, or no running dispatcher, has a handler for the delivery. It waits until both have.',
    BLOCKED_TARGET: 'The target is not allowed. EGRESS_ALLOW decides which targets are.',
    TLS: 'The certificate of the downstream is not valid.',
    REJECTED: 'A row of the outbox is not a valid task. Correct it, or remove it.',
    DEPENDENCY_FAILED: 'The task waits for another one, which failed.',
    PREPARED_STUCK: 'The producer has not answered whether the half message is committed.',
    KEY_HELD:
      'A FAILED delivery holds its orderingKey. Those behind it wait until it is redelivered, settled or released.',
    MISMATCH: 'A reconciliation found differences between Ackbox and the downstream.',
    TEST: 'This is a test. Nothing is wrong.'
  },
  raisedTitle: (kind, downstream, count) =>
    `[ALARM] Ackbox: ${count} × ${kind}${downstream === '' ? '' : ` for ${downstream}`}`,
  resolvedTitle: (kind, downstream) =>
    `[RESOLVED] Ackbox: ${kind}${downstream === '' ? '' : ` for ${downstream}`}`,
  testTitle: '[TEST] Ackbox: a test of this channel',
  resolvedSince: since => `No alarm of it is open since ${since}.`,
  delivery: ({ taskNo, messageCode, attempt, reason }) =>
    `${taskNo} (${messageCode || '-'}), attempt ${attempt}${reason ? `: ${reason}` : ''}`,
  more: count => `and ${count} more`,
  openAlarms: url => `All open alarms: ${url}`
}

const zh: Texts = {
  meanings: {
    FAILED: '投递最终失败。下游恢复之后，请重投任务。',
    NO_HANDLER: '运行中的 worker 或运行中的 dispatcher 都没有这个投递的处理器。两者都有之后才会投递。',
    BLOCKED_TARGET: '目标地址不允许访问。请检查 EGRESS_ALLOW。',
    TLS: '下游的证书无效。',
    REJECTED: '发件箱里有一行不是合法的任务。请改正或移除。',
    DEPENDENCY_FAILED: '任务等待的前置任务失败了。',
    PREPARED_STUCK: '生产者一直没有答复半消息是提交还是回滚。',
    KEY_HELD: 'FAILED 的投递卡住了它的 orderingKey，后面的投递都在等待。请重投、人工了结或放行。',
    MISMATCH: '对账发现 Ackbox 与下游不一致。',
    TEST: '这是一条测试消息，一切正常。'
  },
  raisedTitle: (kind, downstream, count) =>
    `[告警] Ackbox：${downstream === '' ? '' : `下游 ${downstream} 有 `}${count} 个 ${kind}`,
  resolvedTitle: (kind, downstream) =>
    `[恢复] Ackbox：${downstream === '' ? '' : `下游 ${downstream} 的 `}${kind}`,
  testTitle: '[测试] Ackbox：告警渠道测试',
  resolvedSince: since => `自 ${since} 起，这类告警已全部解决。`,
  delivery: ({ taskNo, messageCode, attempt, reason }) =>
    `${taskNo}（${messageCode || '-'}），第 ${attempt} 次尝试${reason ? `：${reason}` : ''}`,
  more: count => `还有 ${count} 个`,
  openAlarms: url => `全部未解决的告警：${url}`
}

export const texts: Record<Language, Texts> = { en, zh }
