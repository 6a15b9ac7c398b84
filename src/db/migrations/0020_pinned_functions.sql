-- by hand
-- All functions as before, but no object of another role can be part of them: names are resolved in pg_catalog only, and those of our own
-- have their schema. With `public` in the path an operator of another role, such as public.||(name, name), fitted better than PostgreSQL's,
-- and ran with the rights of the functions' owner. A later migration that replaces a function repeats the SET clause.
DO $migration$
DECLARE
	home text := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'task'::regclass);
	statement text;
BEGIN
	FOREACH statement IN ARRAY ARRAY[
$function$
CREATE OR REPLACE FUNCTION ackbox_api.enqueue(
	message_code text, message_body text, task_no text DEFAULT NULL, scene_type text DEFAULT '',
	deliver_start_time timestamptz DEFAULT NULL, delay interval DEFAULT NULL, deliver_before timestamptz DEFAULT NULL,
	ordering_key text DEFAULT NULL, need_callback boolean DEFAULT NULL, retry_times int DEFAULT NULL,
	biz_type text DEFAULT NULL, biz_key text DEFAULT NULL, extend jsonb DEFAULT NULL, traceparent text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	-- Not a number made of the body: two equal events that were both committed are two.
	named text := coalesce(task_no, gen_random_uuid()::text);
BEGIN
	INSERT INTO @schema@.outbox (
		task_no, message_code, scene_type, message_body, deliver_start_time, delay, deliver_before, ordering_key,
		need_callback, retry_times, biz_type, biz_key, extend, traceparent, created_by
	) VALUES (
		named, message_code, scene_type, message_body, deliver_start_time, delay, deliver_before, ordering_key,
		need_callback, retry_times, biz_type, biz_key, extend, traceparent, 'sql:' || session_user
	);
	RETURN named;
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION ackbox_api.enqueue(
	message_code text, message_body jsonb, task_no text DEFAULT NULL, scene_type text DEFAULT '',
	deliver_start_time timestamptz DEFAULT NULL, delay interval DEFAULT NULL, deliver_before timestamptz DEFAULT NULL,
	ordering_key text DEFAULT NULL, need_callback boolean DEFAULT NULL, retry_times int DEFAULT NULL,
	biz_type text DEFAULT NULL, biz_key text DEFAULT NULL, extend jsonb DEFAULT NULL, traceparent text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN ackbox_api.enqueue(
		message_code, message_body::text, task_no, scene_type, deliver_start_time, delay, deliver_before, ordering_key,
		need_callback, retry_times, biz_type, biz_key, extend, traceparent
	);
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION ackbox_api.enqueue_many(tasks jsonb) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF jsonb_typeof(tasks) IS DISTINCT FROM 'array' OR EXISTS (
		SELECT FROM jsonb_array_elements(tasks) AS e (task) WHERE jsonb_typeof(task) <> 'object'
	) THEN
		RAISE EXCEPTION 'tasks must be a JSON array of objects' USING ERRCODE = '22023';
	END IF;
	RETURN QUERY
		INSERT INTO @schema@.outbox (
			task_no, message_code, scene_type, ordering_key, traceparent, message_body, members, created_by
		)
		SELECT coalesce(texts->>'taskNo', gen_random_uuid()::text), texts->>'messageCode', texts->>'sceneType',
			texts->>'orderingKey', texts->>'traceparent', (task->'messageBody')::text, members, 'sql:' || session_user
		FROM jsonb_array_elements(tasks) WITH ORDINALITY AS e (task, n)
			CROSS JOIN LATERAL (
				SELECT jsonb_object_agg(key, value) FILTER (WHERE apart) AS texts,
					jsonb_object_agg(key, value) FILTER (WHERE NOT apart AND key <> 'messageBody') AS members
				FROM (
					SELECT key, value, jsonb_typeof(value) = 'string'
						AND key IN ('taskNo', 'messageCode', 'sceneType', 'orderingKey', 'traceparent') AS apart
					FROM jsonb_each(task)
				) m
			) s
		ORDER BY n
		RETURNING outbox.task_no;
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.audit_is_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RAISE EXCEPTION 'audit is append-only: rows are neither changed nor removed';
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.leave_promotion() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	INSERT INTO @schema@.promotion (downstream, ordering_key) VALUES (new.downstream, new.ordering_key);
	RETURN NULL;
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.promote(downstreams text[], ordering_keys text[], lease_ms float8[], skips boolean[], owner int)
RETURNS TABLE (
	task_id uuid, downstream text, attempt int, phase text, tries_left smallint, lost smallint, needs_receipt boolean, "position" bigint,
	deliver_before timestamptz, round_from int, round int, round_at timestamptz
)
-- Of one key a plan made anew costs more than all that it does.
LANGUAGE plpgsql SET plan_cache_mode = 'force_generic_plan' SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
	PERFORM FROM (
		SELECT * FROM unnest(downstreams, ordering_keys) AS k (downstream, ordering_key) ORDER BY 1, 2
	) k CROSS JOIN LATERAL (
		SELECT FROM @schema@.ordering o WHERE o.downstream = k.downstream AND o.ordering_key = k.ordering_key FOR UPDATE
	) o;
	-- Before the look and not after it: what is left after this was left by an end that the look may not see.
	DELETE FROM @schema@.promotion WHERE ctid = ANY (ARRAY(
		SELECT p.place FROM unnest(downstreams, ordering_keys) AS k (downstream, ordering_key) CROSS JOIN LATERAL (
			SELECT ctid AS place FROM @schema@.promotion
			WHERE downstream = k.downstream AND ordering_key = k.ordering_key OFFSET 0
		) p
	));
	-- Up to 1,000 in all, or a statement could take longer than it may: its keys are locked, and all that it did would be undone.
	IF true = ANY (skips) THEN
		WITH RECURSIVE failed AS (
			SELECT o.downstream, o.ordering_key, f.task_id, f.position, 1 AS n, greatest(1, 1000 / count(*) OVER ()) AS most
			FROM unnest(downstreams, ordering_keys, skips) AS k (downstream, ordering_key, skip)
			CROSS JOIN LATERAL (
				SELECT * FROM @schema@.ordering WHERE downstream = k.downstream AND ordering_key = k.ordering_key OFFSET 0
			) o CROSS JOIN LATERAL (
				SELECT d.task_id, d.position, d.status FROM @schema@.delivery d
				WHERE d.downstream = o.downstream AND d.ordering_key = o.ordering_key AND d.position >= o.head AND d.status IN (0, 2)
				ORDER BY d.position LIMIT 1
			) f
			WHERE k.skip AND f.status = 2
			UNION ALL
			SELECT b.downstream, b.ordering_key, f.task_id, f.position, b.n + 1, b.most
			FROM failed b CROSS JOIN LATERAL (
				SELECT d.task_id, d.position, d.status FROM @schema@.delivery d
				WHERE d.downstream = b.downstream AND d.ordering_key = b.ordering_key AND d.position > b.position AND d.status IN (0, 2)
				ORDER BY d.position LIMIT 1
			) f
			WHERE f.status = 2 AND b.n < b.most
		), locked AS MATERIALIZED (
			SELECT d.task_id, d.downstream, d.ordering_key, d.position, d.status
			FROM failed f JOIN @schema@.delivery d ON d.task_id = f.task_id AND d.downstream = f.downstream
			ORDER BY d.task_id, d.downstream
			FOR NO KEY UPDATE OF d
		)
		UPDATE @schema@.delivery d SET position = -d.position, updated_at = now()
		FROM (
			-- That one FAILED is only certain when its row is locked. One that was redelivered meanwhile has its turn before those behind it.
			SELECT *, bool_or(status = 0 AND position > 0) OVER (PARTITION BY downstream, ordering_key ORDER BY position) AS is_behind
			FROM locked
		) l
		WHERE d.task_id = l.task_id AND d.downstream = l.downstream AND l.status = 2 AND NOT l.is_behind;
	END IF;
	RETURN QUERY
	WITH head AS MATERIALIZED (
		SELECT o.downstream, o.ordering_key, o.head AS was, o.held_at, k.lease_ms, f.task_id, f.position, f.phase, f.attempt,
			coalesce(f.status = 2, false) AS failed, coalesce(f.status = 2 AND NOT k.skip, false) AS holds
		FROM unnest(downstreams, ordering_keys, lease_ms, skips) AS k (downstream, ordering_key, lease_ms, skip)
		CROSS JOIN LATERAL (
			SELECT * FROM @schema@.ordering
			WHERE downstream = k.downstream AND ordering_key = k.ordering_key AND head IS NOT NULL OFFSET 0
		) o LEFT JOIN LATERAL (
			SELECT d.task_id, d.position, d.status, d.phase, d.attempt FROM @schema@.delivery d
			WHERE d.downstream = o.downstream AND d.ordering_key = o.ordering_key AND d.position >= o.head AND d.status IN (0, 2)
			ORDER BY d.position LIMIT 1
		) f ON true
	), kept AS (
		UPDATE @schema@.ordering o SET head = h.position, held_at = CASE WHEN h.holds THEN coalesce(o.held_at, now()) END
		FROM head h
		WHERE o.downstream = h.downstream AND o.ordering_key = h.ordering_key
			AND (h.position IS DISTINCT FROM h.was OR (h.held_at IS NOT NULL) <> h.holds)
	), again AS (
		-- It is to be passed too, by the next look at the key.
		INSERT INTO @schema@.promotion (downstream, ordering_key)
		SELECT h.downstream, h.ordering_key FROM head h WHERE h.failed AND NOT h.holds
	), alarmed AS (
		INSERT INTO @schema@.alarm (task_id, downstream, attempt, kind)
		SELECT h.task_id, h.downstream, h.attempt, 'KEY_HELD' FROM head h
		WHERE h.holds AND (h.held_at IS NULL OR h.position <> h.was)
		ON CONFLICT (task_id, downstream, attempt, kind) DO UPDATE
			SET resolved_at = NULL, sent_at = NULL, tries = 0, next_action_at = now(), created_at = now()
			WHERE alarm.resolved_at IS NOT NULL
	), resolved AS (
		UPDATE @schema@.alarm a SET resolved_at = now()
		FROM head h CROSS JOIN LATERAL (
			SELECT d.task_id FROM @schema@.delivery d
			WHERE d.downstream = h.downstream AND d.ordering_key = h.ordering_key AND d.position IN (h.was, -h.was) OFFSET 0
		) d
		WHERE h.held_at IS NOT NULL AND (NOT h.holds OR h.position <> h.was)
			AND a.task_id = d.task_id AND a.downstream = h.downstream AND a.kind = 'KEY_HELD' AND a.resolved_at IS NULL
	), locked AS MATERIALIZED (
		SELECT d.task_id, d.downstream, h.lease_ms, greatest(now(), least(coalesce(t.deliver_start_time, now()), d.deliver_before)) AS due,
			d.deliver_before
		FROM head h CROSS JOIN LATERAL (SELECT deliver_start_time FROM @schema@.task WHERE id = h.task_id OFFSET 0) t
		JOIN @schema@.delivery d ON d.task_id = h.task_id AND d.downstream = h.downstream
		WHERE h.phase = 'BLOCKED' AND d.phase = 'BLOCKED'
			AND NOT EXISTS (SELECT FROM @schema@.dependency x WHERE x.task_id = h.task_id AND x.done_at IS NULL)
		ORDER BY d.task_id, d.downstream
		FOR NO KEY UPDATE OF d
	), moved AS (
		UPDATE @schema@.delivery d SET
			phase = CASE WHEN c.claimed THEN 'IN_FLIGHT' ELSE 'WAITING' END,
			attempt = CASE WHEN c.claimed THEN d.attempt + 1 ELSE d.attempt END,
			tries_left = CASE WHEN c.claimed THEN d.tries_left - 1 ELSE d.tries_left END,
			next_action_at = CASE WHEN c.claimed THEN now() + c.lease_ms * interval '1 ms' ELSE c.due END,
			updated_at = now(), round_at = CASE WHEN c.claimed AND d.attempt < d.round_from THEN now() ELSE d.round_at END,
			owner = CASE WHEN c.claimed THEN promote.owner END
		FROM (
			SELECT *, lease_ms IS NOT NULL AND due <= now() AND (deliver_before IS NULL OR deliver_before > now()) AS claimed
			FROM locked
		) c
		WHERE d.task_id = c.task_id AND d.downstream = c.downstream
		RETURNING d.*
	)
	SELECT m.task_id, m.downstream, m.attempt, m.phase, m.tries_left, m.lost, m.needs_receipt, m.position, m.deliver_before,
		m.round_from::int, coalesce(m.round, 1)::int, coalesce(m.round_at, m.created_at)
	FROM moved m;
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.promote(downstreams text[], ordering_keys text[], lease_ms float8[], skips boolean[])
RETURNS TABLE (
	task_id uuid, downstream text, attempt int, phase text, tries_left smallint, lost smallint, needs_receipt boolean, "position" bigint,
	deliver_before timestamptz, round_from int, round int, round_at timestamptz
)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT * FROM @schema@.promote(downstreams, ordering_keys, lease_ms, skips, NULL::int)
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.release_key(name text, key text, seen text) RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	passed uuid;
BEGIN
	PERFORM FROM @schema@.ordering WHERE downstream = name AND ordering_key = key FOR UPDATE;
	UPDATE @schema@.delivery d SET position = -d.position, updated_at = now()
	FROM (
		SELECT f.* FROM @schema@.ordering o CROSS JOIN LATERAL (
			SELECT task_id, position, status FROM @schema@.delivery
			WHERE downstream = name AND ordering_key = key AND position >= o.head AND status IN (0, 2)
			ORDER BY position LIMIT 1
		) f
		WHERE o.downstream = name AND o.ordering_key = key
	) h
	WHERE h.status = 2 AND d.task_id = h.task_id AND d.downstream = name AND d.position = h.position AND d.status = 2
		AND (seen IS NULL OR h.task_id = (SELECT id FROM @schema@.task WHERE task_no = seen))
	RETURNING d.task_id INTO passed;
	IF passed IS NOT NULL THEN
		UPDATE @schema@.ordering o SET held_at = NULL, head = (
			SELECT position FROM @schema@.delivery
			WHERE downstream = name AND ordering_key = key AND position >= o.head AND status IN (0, 2)
			ORDER BY position LIMIT 1
		)
		WHERE o.downstream = name AND o.ordering_key = key;
		UPDATE @schema@.alarm SET resolved_at = now()
		WHERE task_id = passed AND downstream = name AND kind = 'KEY_HELD' AND resolved_at IS NULL;
		INSERT INTO @schema@.promotion (downstream, ordering_key) VALUES (name, key);
	END IF;
	RETURN passed;
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.release_key(name text, key text) RETURNS uuid LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT @schema@.release_key(name, key, NULL)
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.lowest_id(at timestamptz) RETURNS uuid LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT (lpad(to_hex(greatest(0, extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.day_of_id(id uuid) RETURNS timestamptz LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT date_trunc('day', to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0), 'UTC')
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.partitions_of(parent text) RETURNS TABLE (name text, low uuid, high uuid) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT c.relname::text, substring(b.bound FROM 'FROM [(]''([^'']+)''[)]')::uuid, substring(b.bound FROM 'TO [(]''([^'']+)''[)]')::uuid
	FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid CROSS JOIN LATERAL pg_get_expr(c.relpartbound, c.oid) AS b (bound)
	WHERE i.inhparent = format('%I.%I', @schema_name@, parent)::regclass
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.make_partition(parent text, id uuid) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '2s' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	home CONSTANT text := @schema_name@;
	day timestamptz := @schema@.day_of_id(id);
	first uuid := @schema@.lowest_id(day);
	upto uuid := @schema@.lowest_id(day + interval '24 hours');
	made text := parent || '_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
	beside uuid;
BEGIN
	IF parent NOT IN ('attempt', 'receipt') THEN
		RAISE EXCEPTION '% has no partitions', parent USING ERRCODE = '22023';
	END IF;
	-- Two that make the same one wait here for each other.
	EXECUTE format('LOCK TABLE %I.%I IN SHARE UPDATE EXCLUSIVE MODE', home, parent);
	IF EXISTS (SELECT FROM @schema@.partitions_of(parent) p WHERE (p.low IS NULL OR p.low <= id) AND id < p.high) THEN
		RETURN NULL;
	END IF;
	SELECT p.high INTO beside FROM @schema@.partitions_of(parent) p WHERE p.high <= id AND p.high > first ORDER BY p.high DESC LIMIT 1;
	IF FOUND THEN
		first := beside;
		made := made || to_char(
			to_timestamp(('x' || left(replace(beside::text, '-', ''), 12))::bit(48)::bigint / 1000.0) AT TIME ZONE 'UTC', '"_"HH24MI');
	END IF;
	SELECT p.low INTO beside FROM @schema@.partitions_of(parent) p WHERE p.low > id AND p.low < upto ORDER BY p.low LIMIT 1;
	upto := coalesce(beside, upto);
	EXECUTE format('CREATE TABLE %1$I.%2$I (LIKE %1$I.%3$I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', home, made, parent);
	EXECUTE format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%L) TO (%L)', home, parent, home, made, first, upto);
	RETURN made;
END
$$
$function$,
$function$
CREATE OR REPLACE FUNCTION @schema@.drop_partition(parent text, part text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	home CONSTANT text := @schema_name@;
	bounds record;
BEGIN
	IF parent NOT IN ('attempt', 'receipt') THEN
		RAISE EXCEPTION '% has no partitions', parent USING ERRCODE = '22023';
	END IF;
	EXECUTE format('LOCK TABLE %I.%I IN ACCESS EXCLUSIVE MODE', home, parent);
	SELECT p.low, p.high INTO bounds FROM @schema@.partitions_of(parent) p WHERE p.name = part AND p.high <= @schema@.lowest_id(now());
	IF NOT FOUND OR EXISTS (
		SELECT FROM @schema@.task WHERE task.id >= coalesce(bounds.low, '00000000-0000-0000-0000-000000000000') AND task.id < bounds.high
	) THEN
		RETURN false;
	END IF;
	EXECUTE format('DROP TABLE %I.%I', home, part);
	RETURN true;
END
$$
$function$
	] LOOP
		EXECUTE replace(replace(statement, '@schema@', quote_ident(home)), '@schema_name@', quote_literal(home));
	END LOOP;
END
$migration$;
