ALTER TABLE "api_key" ADD COLUMN "created_by_id" text;--> statement-breakpoint
ALTER TABLE "api_key" ADD COLUMN "quota_id" text;--> statement-breakpoint
ALTER TABLE "operation" ADD COLUMN "created_by_id" text;--> statement-breakpoint
UPDATE "api_key" k SET "created_by_id" = a."key_id" FROM "audit" a
WHERE a."what" = 'key.created' AND a."target" = k."id" AND a."key_id" IS NOT NULL;--> statement-breakpoint
-- As src/db/api-keys.ts decides for new keys: a key shares the limits of its maker, unless a key with all rights made it for some messageCodes.
WITH RECURSIVE top AS (
	SELECT k."id", k."id" AS "quota_id" FROM "api_key" k LEFT JOIN "api_key" m ON m."id" = k."created_by_id"
	WHERE m."id" IS NULL OR (k."message_codes" IS NOT NULL AND m."message_codes" IS NULL
		AND m."scopes" @> '{tasks:write,tasks:read,ops:read,ops:write}'::text[])
	UNION
	SELECT k."id", t."quota_id" FROM top t JOIN "api_key" m ON m."id" = t."id" JOIN "api_key" k ON k."created_by_id" = m."id"
	WHERE NOT (k."message_codes" IS NOT NULL AND m."message_codes" IS NULL
		AND m."scopes" @> '{tasks:write,tasks:read,ops:read,ops:write}'::text[])
)
UPDATE "api_key" k SET "quota_id" = t."quota_id" FROM top t WHERE t."id" = k."id" AND t."quota_id" <> k."id";--> statement-breakpoint
-- by hand
-- Each is called in the statement that adds the row. Calls of it follow one another: the lock lasts until that row is committed, and the
-- statement after the lock sees what the one before has committed.
DO $migration$
DECLARE
	home text := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'task'::regclass);
	statement text;
BEGIN
	FOREACH statement IN ARRAY ARRAY[
$function$
-- Why the key `maker` may not create a key of this name, or null. `maker` null: the command line, or AUTH=off. `is_operator`: `maker` has all
-- rights, or is null. `most`: of live keys that one maker and those with its limits have created.
CREATE FUNCTION @schema@.key_refusal(wanted text, maker text, maker_quota text, is_operator boolean, most int) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1095976779, 1);
	IF EXISTS (
		SELECT FROM @schema@.api_key k LEFT JOIN @schema@.api_key m ON m.id = k.created_by_id
		WHERE lower(k.name) = lower(wanted) AND CASE
			-- Operators may use a name again. Only a live key that a key of fewer rights has made must be revoked first.
			WHEN is_operator THEN k.revoked_at IS NULL AND m.id IS NOT NULL
				AND NOT (m.message_codes IS NULL AND m.scopes @> '{tasks:write,tasks:read,ops:read,ops:write}'::text[])
			ELSE k.id <> maker AND k.created_by_id IS DISTINCT FROM maker
		END
	) THEN
		RETURN 'name';
	END IF;
	IF (
		SELECT count(*) FROM @schema@.api_key k
		WHERE k.revoked_at IS NULL AND (k.created_by_id = maker OR k.quota_id = maker_quota)
	) >= most THEN
		RETURN 'many';
	END IF;
	RETURN NULL;
END
$$
$function$,
$function$
-- The running operation that takes whatever one with this filter and these messageCodes would take, or null.
CREATE FUNCTION @schema@.running_operation(wanted jsonb, codes text[]) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1095976779, 2);
	RETURN (
		SELECT o.id FROM @schema@.operation o
		WHERE o.state = 'RUNNING' AND o.filter = wanted
			AND (o.message_codes IS NULL OR o.message_codes @> codes OR wanted->>'messageCode' = ANY (o.message_codes))
		ORDER BY o.id LIMIT 1
	);
END
$$
$function$
	] LOOP
		EXECUTE replace(statement, '@schema@', quote_ident(home));
	END LOOP;
END
$migration$;
