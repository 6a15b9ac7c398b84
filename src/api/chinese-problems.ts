// Problems in Chinese, for requests with `Accept-Language: zh`. Codes and pointers are the same in every language.
import { problems, type Invalid, type ProblemBody, type ProblemCode } from '../runtime/errors.ts'

export const chineseTitles: Readonly<Record<ProblemCode, string>> = {
  NOT_JSON: '请求体不是 JSON',
  NOT_UTF8: '请求体不是 UTF-8',
  NOT_I_JSON: '请求体不是 I-JSON（RFC 7493）',
  TOO_DEEP: '请求体嵌套过深',
  TOO_MANY_MEMBERS: '请求体的成员过多',
  BAD_REQUEST: 'HTTP 请求格式错误',
  UNAUTHORIZED: '需要有效的 API 密钥',
  BAD_TOKEN: '回执的 token 对这次投递无效',
  FORBIDDEN: '这个 API 密钥缺少所需的权限',
  CODE_FORBIDDEN: '这个 API 密钥不能使用这个 messageCode',
  CSRF: '这次写入缺少会话的 token',
  CROSS_ORIGIN: '不接受来自其他来源的请求',
  NOT_FOUND: '路径不存在',
  TASK_NOT_FOUND: '任务不存在',
  OPERATION_NOT_FOUND: '批量操作不存在',
  REJECTED_NOT_FOUND: '被拒绝的行不存在',
  DOWNSTREAM_NOT_FOUND: '下游不存在',
  KEY_NOT_FOUND: '顺序键不存在',
  FAILURE_NOT_FOUND: '没有这个指纹的失败',
  ALARM_NOT_FOUND: '告警不存在',
  API_KEY_NOT_FOUND: 'API 密钥不存在',
  METHOD_NOT_ALLOWED: '不支持这个方法',
  TIMEOUT: '没有在时限内收到完整的请求',
  TASK_CONFLICT: '这个 taskNo 的任务已存在，内容不同',
  BIZ_CONFLICT: '这个 bizType 和 bizKey 已有同一 messageCode 的任务',
  NOTHING_TO_STOP: '这个任务没有可以停止的投递',
  NOTHING_TO_REDELIVER: '这个任务没有可以重投的投递',
  KEY_NOT_HELD: '没有失败的投递卡住这个顺序键',
  NOTHING_TO_PUSH: '这个任务没有等待下一次尝试的投递',
  NOTHING_TO_SETTLE: '这个任务没有可以人工了结的投递',
  TASK_NOT_STARTED: '这个任务还在等开始时间',
  TASK_BLOCKED: '这个任务在等其他任务',
  OPERATION_RUNNING: '已有运行中的批量操作在重投这些投递',
  OPERATION_ENDED: '这个批量操作已经结束',
  API_KEY_NAME_TAKEN: '已有同名的 API 密钥，并且不是你的密钥创建的',
  TOO_MANY_API_KEYS: '你的密钥创建的 API 密钥太多',
  TASK_PREPARED: '这个任务是半消息：请提交或回滚',
  TASK_COMMITTED: '这个任务已提交',
  TASK_ROLLED_BACK: '这个任务已回滚',
  NOT_PREPARED: '这个任务不是半消息',
  NO_REQUEST: '处理器没有为这次投递生成请求',
  TASK_EXPIRED: '这个任务已过 deliverBefore',
  PREREQUISITE_DELETED: '这个任务等待的前置任务已被删除',
  TASK_DELETED: '这次投递已被删除',
  TOO_LARGE: '请求过大',
  BODY_TOO_LARGE: 'messageBody 过大',
  DATA_TOO_LARGE: 'data 过大',
  URI_TOO_LONG: '请求地址过长',
  UNSUPPORTED_MEDIA_TYPE: '请求体必须是 UTF-8 的 application/json，不能压缩',
  EXPECTATION_FAILED: '只支持 Expect: 100-continue',
  MISDIRECTED: '不为这个 Host 提供服务',
  INVALID: '请求不符合 schema',
  UNKNOWN_CODE: '没有这个 messageCode 的处理器',
  NO_CHECK_BACK: '这个 messageCode 的处理器不支持半消息：它没有 checkBack',
  WRONG_CODE: '这个任务的 messageCode 不同',
  WRONG_DOWNSTREAM: '这个 token 属于另一个下游',
  TOO_MANY_REQUESTS: '请求过多',
  TOO_MANY_WAITERS: '等待任务的请求过多',
  OVERLOADED: '服务过载',
  HEADERS_TOO_LARGE: '请求头过大',
  INTERNAL: '内部错误：Ackbox 的 bug',
  UNAVAILABLE: '服务暂时无法处理这个请求：请重试'
}

/** The parts that the JSON reader expected. */
const chineseExpected: Readonly<Record<string, string>> = {
  'a value': '一个值',
  'a member name in quotes': '带引号的成员名',
  'a colon': '冒号',
  'a comma or }': '逗号或 }',
  'a comma or ]': '逗号或 ]',
  'the end': '文本结尾'
}

/** Details with a fixed text. */
export const chineseDetails: Readonly<Record<string, string>> = {
  'Not UTF-8': '不是 UTF-8',
  'A byte order mark': '有字节序标记（BOM）',
  'A string without its closing quote': '字符串缺少结束的引号',
  'Unknown escape in a string': '字符串里有未知的转义',
  'U+0000 in a string: no database text can hold it': '字符串里有 U+0000：数据库的文本存不下',
  'Malformed number': '数字格式错误',
  'A number that a double cannot hold; send it as a string': '双精度浮点数存不下的数字，请用字符串发送',
  'The same member name twice in one object': '同一个对象里有重复的成员名',
  'the body is empty': '请求体为空',
  'this call takes no body': '这个接口不接受请求体',
  'more than one JSON value': '不止一个 JSON 值',
  'the charset must be utf-8': '字符集必须是 utf-8',
  'Content-Encoding is not supported': '不支持 Content-Encoding',
  'more than 256 headers': '请求头超过 256 个',
  'exactly one Host is needed': '必须有且只有一个 Host',
  'Set force to deliver it anyway.': '设置 force 可以强制投递。',
  'set deliverStartTime or delay, not both': 'deliverStartTime 和 delay 只能设置一个',
  'set both bizType and bizKey, or neither': 'bizType 和 bizKey 要么都设置，要么都不设置',
  'must be at most a year ahead': '最多只能在一年之后',
  'must be at most two years ahead': '最多只能在两年之后',
  'must be after the start of delivery': '必须晚于投递的开始时间',
  'requires prepared: true': '需要 prepared: true',
  'looks like a default taskNo of another messageCode': '形式像另一个 messageCode 的默认 taskNo',
  'accepts only messages from DTM clients': '只接受 DTM 客户端的消息',
  'a half message cannot wait for other tasks': '半消息不能等待其他任务',
  'no such task': '没有这个任务',
  'its handler has no checkBack': '它的处理器没有 checkBack',
  'No downstream of this handler accepts receipts. Set needCallback in the handler.':
    '这个处理器没有接受回执的下游。请在处理器里设置 needCallback。',
  'must be an RFC 3339 time with its zone, like 2026-11-20T10:00:00Z':
    '必须是带时区的 RFC 3339 时间，例如 2026-11-20T10:00:00Z',
  'must be a time from 1s to 24h, like 35s, 5m or 2h': '必须是 1s 到 24h 的时长，例如 35s、5m 或 2h',
  'must be in 1970 to 9999': '必须在 1970 年到 9999 年之间',
  'must be any JSON value except null': '必须是 null 之外的 JSON 值',
  'must be an object': '必须是对象',
  'must be the beginning of a taskNo': '必须是 taskNo 的开头',
  'must be a webhook-id, as a downstream got it': '必须是下游收到的 webhook-id',
  'must be an API key, ack_…': '必须是 API 密钥：ack_…',
  'must be 16 hexadecimal digits': '必须是 16 位十六进制数字',
  'must be up to 4 hexadecimal digits, in lower case': '必须是最多 4 位小写十六进制数字',
  'must be at most 31 days after from': '最多只能在 from 之后 31 天',
  'must have at most 256 buckets': '最多 256 个桶',
  'must have buckets of one length': '桶的长度必须相同',
  'must have concurrency or perSecond': '必须有 concurrency 或 perSecond',
  'must not contain U+0000': '不能含有 U+0000',
  'must be after from': '必须晚于 from',
  'must be a whole number': '必须是整数',
  'must have one bucket or more': '至少要有一个桶',
  'The task has no delivery to it.': '这个任务没有发往它的投递。',
  'it is not held by this task': '卡住它的不是这个任务',
  'set bizType too': '请同时设置 bizType',
  'must be the nextCursor of the previous page': '必须是上一页的 nextCursor',
  'with other content': '内容不同',
  'This downstream also gets tasks of other messageCodes.': '这个下游也接收其他 messageCode 的任务。',
  'Keys bound to messageCodes cannot read the audit.': '绑定了 messageCode 的密钥不能读审计。',
  'These cover every messageCode.': '这里有所有 messageCode 的信息。',
  'this process has no handler for its messageCode': '这个进程没有它的 messageCode 的处理器',
  'its status is CANCELLED': '它的状态是 CANCELLED',
  'all connections are taken': '所有连接都被占用',
  'too many large bodies are being read': '正在读取的大请求体太多',
  'too many comparisons are running': '正在进行的对账太多',
  'the comparison takes too long: choose a shorter time': '对账耗时过长：请缩短时间窗',
  'the database cannot be reached': '无法连接数据库',
  'the database takes too long': '数据库没有按时响应',
  'no standby has confirmed the commit: send it again': '没有备库确认这次提交：请再次发送',
  'another call changes the same rows: send it again': '另一个请求正在修改同样的行：请重试',
  'the task was removed while it was accepted: post it again': '任务在接收时被清除：请重新提交',
  'this delivery changes too often: send the receipt again': '这次投递变化过于频繁：请重新发送回执',
  'another process has the handler of this messageCode: send it again':
    '这个 messageCode 的处理器在另一个进程里：请重新发送',
  'the process is overloaded': '进程过载',
  'the process is stopping': '进程正在停止',
  'send Authorization: Bearer ack_…': '请发送 Authorization: Bearer ack_…',
  'A key cannot create a key with more rights than its own.': '密钥不能创建权限比自己大的密钥。'
}

/** Details that name a value, with its place. The words of schemas are those of zod's English locale. Other details stay as they are. */
const chinesePatterns: readonly (readonly [RegExp, string])[] = [
  [/^Invalid input: expected (.+), received undefined$/, '缺少这个成员：类型应为 $1'],
  [/^Invalid input: expected (.+), received (.+)$/, '类型应为 $1，实际是 $2'],
  [/^Invalid input: expected (.+)$/, '应为 $1'],
  [/^Invalid input$/, '类型不符'],
  [/^Unrecognized keys?: (.+)$/, '未知的成员：$1'],
  [/^Invalid option: expected one of (.+)$/, '应为其中之一：$1'],
  [/^Too big: expected string to have ≤ (\d+) characters?$/, '最多 $1 个字符'],
  [/^Too small: expected string to have ≥ (\d+) characters?$/, '最少 $1 个字符'],
  [/^Too big: expected array to have ≤ (\d+) items?$/, '最多 $1 项'],
  [/^Too small: expected array to have ≥ (\d+) items?$/, '最少 $1 项'],
  [/^Too big: expected \w+ to be ≤ (.+)$/, '不能大于 $1'],
  [/^Too small: expected \w+ to be ≥ (.+)$/, '不能小于 $1'],
  [/^Too big: expected \w+ to be less than (.+)$/, '必须小于 $1'],
  [/^Too small: expected \w+ to be more than (.+)$/, '必须大于 $1'],
  ...Object.entries(chineseExpected).flatMap(([english, chinese]): [RegExp, string][] => [
    [new RegExp(`^Expected ${english}, but the text ends$`), `应为${chinese}，但文本到此为止`],
    [new RegExp(`^Expected ${english}, found (.+)$`), `应为${chinese}，实际是 $1`]
  ]),
  [/^must be from (\d+) to (\d+)$/, '必须在 $1 到 $2 之间'],
  [
    /^must be (\d+) to (\d+) of (.+) and start with a letter or digit$/,
    '必须是 $1 到 $2 个字符，只能用 $3，以字母或数字开头'
  ],
  [
    /^must be (\d+) to (\d+) of (.+) and start with a letter$/,
    '必须是 $1 到 $2 个字符，只能用 $3，以字母开头'
  ],
  [/^must have (\d+) to (\d+) of (.+)$/, '必须是 $1 到 $2 个字符，只能用 $3'],
  [/^must have (\d+) to ([\d,]+) characters$/, '必须是 $1 到 $2 个字符'],
  [/^must be up to (\d+) characters, none of them a control character$/, '最多 $1 个字符，不能有控制字符'],
  [
    /^must be (\d+) to (\d+) characters, none of them a control character$/,
    '必须是 $1 到 $2 个字符，不能有控制字符'
  ],
  [/^must be at most ([\d,]+) characters of JSON$/, 'JSON 最多 $1 个字符'],
  [/^Unescaped control character (.+) in a string$/, '字符串里有未转义的控制字符 $1'],
  [/^Lone surrogate (.+) in a string$/, '字符串里有不成对的代理项 $1'],
  [/^More than (\d+) levels deep$/, '嵌套超过 $1 层'],
  [/^More than (\d+) elements$/, '超过 $1 个元素'],
  [/^More than (\d+) members$/, '超过 $1 个成员'],
  [/^More than (\d+) members around the body$/, 'messageBody 之外超过 $1 个成员'],
  [/^(\S+)\. Did you mean (\S+)\?$/, '$1。是不是 $2？'],
  [/^(\S+)\. Known: (.+) and (\d+) more$/, '$1。已有：$2 等，另有 $3 个'],
  [/^(\S+)\. Known: (.+)$/, '$1。已有：$2'],
  [/^The handler of (\S+) has no downstream of this name\.$/, '$1 的处理器没有这个名称的下游。'],
  [/^requires the scope (\S+)$/, '需要权限 $1'],
  [/^requires the scope (\S+) or (\S+)$/, '需要权限 $1 或 $2']
]

export function inChinese(body: ProblemBody): ProblemBody {
  return {
    ...body,
    title: chineseTitles[body.code],
    ...(body.detail === undefined ? {} : { detail: detailOf(body.detail) }),
    ...(body.errors === undefined ? {} : { errors: body.errors.map(errorOf) })
  }
}

/** An error that is not the first begins with the title of its code. */
const titles = new Map<string, string>(
  Object.entries(problems).map(([code, [, title]]) => [title, chineseTitles[code as ProblemCode]])
)

/** A problem of the JSON ends with its place. */
const withPlace = /^(.+), at byte (\d+)$/

function detailOf(detail: string): string {
  const [, problem, at] = withPlace.exec(detail) ?? []
  if (problem !== undefined) {
    const chinese = detailOf(problem)
    return chinese === problem ? detail : `${chinese}，位于字节 ${at}`
  }
  const known = Object.hasOwn(chineseDetails, detail) ? chineseDetails[detail] : titles.get(detail)
  if (known !== undefined) return known
  for (const [english, chinese] of chinesePatterns)
    if (english.test(detail)) return detail.replace(english, chinese)
  const end = detail.indexOf(': ')
  const title = titles.get(detail.slice(0, end))
  return title === undefined ? detail : `${title}: ${detailOf(detail.slice(end + 2))}`
}
const errorOf = ({ detail, pointer }: Invalid): Invalid => ({ detail: detailOf(detail), pointer })

/** Whether the header prefers Chinese to English. A header with neither gets English. */
export function wantsChinese(acceptLanguage: string | undefined): boolean {
  if (acceptLanguage === undefined || !/zh/i.test(acceptLanguage)) return false
  const ranges = acceptLanguage
    .split(',')
    .map(each => /^([a-z]+|\*)(?:-[\w-]*)?(?:\s*;\s*q=([\d.]+))?$/i.exec(each.trim()))
  const weightOf = (language: string): { weight: number; at: number } => {
    const weights = ranges.map(range =>
      range?.[1]?.toLowerCase() === language ? Math.min(1, Number(range[2] ?? 1)) : 0
    )
    const weight = Math.max(...weights)
    return { weight, at: weights.indexOf(weight) }
  }
  const [chinese, english] = [weightOf('zh'), weightOf('en')]
  if (chinese.weight === english.weight) return chinese.weight > 0 && chinese.at < english.at
  return chinese.weight > english.weight
}
