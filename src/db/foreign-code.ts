// What lets another role run code with our rights: a statement looks for functions and operators in each schema of its search_path, and
// one that fits its arguments better is taken before PostgreSQL's own.
import type { Sql } from './pool.ts'

/** Undoing it is one statement, for a superuser or the owner. */
export interface ForeignCode {
  /** True: such an object exists. False: a role may create one. */
  isThere: boolean
  found: string
  remedy: string
}

/**
 * The rights and objects of roles that may not write our tables anyway, in the schemas of our sessions. An object counts if PostgreSQL, or
 * we, have one of its name.
 */
export async function foreignCode(sql: Sql): Promise<ForeignCode[]> {
  return await sql<ForeignCode[]>`
    with trusted as materialized (
      select r.oid from pg_roles r
      where r.rolsuper or r.rolname in (current_user, 'pg_database_owner')
        or r.oid = (select datdba from pg_database where datname = current_database())
        or has_table_privilege(r.oid, to_regclass('task'), 'insert')
    ), home as materialized (
      select n.oid, n.nspname as name, n.nspowner as owner, coalesce(n.nspacl, acldefault('n', n.nspowner)) as acl,
        n.nspname = any(current_schemas(false)) as is_searched
      from pg_namespace n
      where n.nspname <> 'pg_catalog' and (n.nspname = any(current_schemas(false)) or n.nspname in ('ackbox_api', 'drizzle', 'bullmq'))
    )
    select false as "isThere",
      case a.grantee when 0 then 'every role' else pg_get_userbyid(a.grantee)::text end
        || ' may create functions and operators in the schema ' || h.name || ', and statements of Ackbox would run them' as found,
      format('revoke create on schema %I from %s;', h.name,
        case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end) as remedy
    from home h cross join lateral aclexplode(h.acl) a
    where a.privilege_type = 'CREATE' and a.grantee <> h.owner and a.grantee not in (select oid from trusted)
    union all
    select false, 'the schema ' || h.name || ' belongs to ' || pg_get_userbyid(h.owner)::text,
      format('alter schema %I owner to %I;', h.name, current_user)
    from home h where not h.is_searched and h.owner not in (select oid from trusted)
    union all
    select false, case a.grantee when 0 then 'every role' else pg_get_userbyid(a.grantee)::text end
        || ' may create a schema with the name of this user, which its statements would search first',
      format('alter role %I set search_path = %s;', current_user, quote_ident(current_schema()))
    from pg_database d cross join lateral aclexplode(d.datacl) a
    where d.datname = current_database() and a.privilege_type = 'CREATE' and a.grantee not in (select oid from trusted)
      and current_setting('search_path') like '%"$user"%' and to_regnamespace(quote_ident(current_user)) is null
    union all
    select true, o.name || ' of ' || pg_get_userbyid(o.owner)::text || ' may run in place of one that Ackbox means',
      'drop ' || o.kind || ' ' || o.name || ';'
    from (
      select 'function' as kind, format('%I.%I(%s)', h.name, p.proname, pg_get_function_identity_arguments(p.oid)) as name,
        p.proowner as owner, h.owner as home_owner, p.oid, 'pg_proc'::regclass as class
      from home h join pg_proc p on p.pronamespace = h.oid
      where exists (select from pg_proc o where o.proname = p.proname and o.oid <> p.oid)
      union all
      select 'operator', format('%I.%s(%s, %s)', h.name, o.oprname,
          case o.oprleft when 0 then 'none' else format_type(o.oprleft, null) end, format_type(o.oprright, null)),
        o.oprowner, h.owner, o.oid, 'pg_operator'::regclass
      from home h join pg_operator o on o.oprnamespace = h.oid
    ) o
    where o.owner <> o.home_owner and o.owner not in (select oid from trusted)
      and not exists (select from pg_depend d where d.classid = o.class and d.objid = o.oid and d.deptype = 'e')
    order by 1 desc, 2
    limit 20`
}

/** The schemas of our sessions in which this role, which has its name in PostgreSQL, may create objects, as the statements that forbid it. */
export async function openSchemasFor(sql: Sql, role: string): Promise<string[]> {
  const open = await sql<{ remedy: string }[]>`
    select format('revoke create on schema %I from %s;', n.nspname, string_agg(distinct
        case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end, ', ')) as remedy
    from pg_namespace n cross join lateral aclexplode(n.nspacl) a join pg_roles r on r.rolname = ${role}
    where n.nspname <> 'pg_catalog' and n.nspname = any(current_schemas(false)) and a.privilege_type = 'CREATE'
      and not r.rolsuper and not pg_has_role(r.oid, n.nspowner, 'member')
      and (a.grantee = 0 or pg_has_role(r.oid, a.grantee, 'member'))
      and not has_table_privilege(r.oid, to_regclass('task'), 'insert')
    group by n.nspname`
  return open.map(({ remedy }) => remedy)
}
