-- by hand
-- The same as before (0006), but where one that FAILED does not hold its key, a call passes a bounded number of them, each read once.
-- Of a key with more of them `promotion` says so, and the next call goes on.
CREATE OR REPLACE FUNCTION "promote"(downstreams text[], ordering_keys text[], lease_ms float8[], skips boolean[], owner int)
RETURNS TABLE (
	task_id uuid, downstream text, attempt int, phase text, tries_left smallint, lost smallint, needs_receipt boolean, "position" bigint,
	deliver_before timestamptz, round_from int, round int, round_at timestamptz
)
-- Of one key a plan made anew costs more than all that it does.
LANGUAGE plpgsql SET plan_cache_mode = 'force_generic_plan' AS $$
#variable_conflict use_column
BEGIN
	PERFORM FROM (
		SELECT * FROM unnest(downstreams, ordering_keys) AS k (downstream, ordering_key) ORDER BY 1, 2
	) k CROSS JOIN LATERAL (
		SELECT FROM ordering o WHERE o.downstream = k.downstream AND o.ordering_key = k.ordering_key FOR UPDATE
	) o;
	-- Before the look and not after it: what is left after this was left by an end that the look may not see.
	DELETE FROM promotion WHERE ctid = ANY (ARRAY(
		SELECT p.place FROM unnest(downstreams, ordering_keys) AS k (downstream, ordering_key) CROSS JOIN LATERAL (
			SELECT ctid AS place FROM promotion
			WHERE downstream = k.downstream AND ordering_key = k.ordering_key OFFSET 0
		) p
	));
	-- Up to 1,000 in all, or a statement could take longer than it may: its keys are locked, and all that it did would be undone.
	IF true = ANY (skips) THEN
		WITH RECURSIVE failed AS (
			SELECT o.downstream, o.ordering_key, f.task_id, f.position, 1 AS n, greatest(1, 1000 / count(*) OVER ()) AS most
			FROM unnest(downstreams, ordering_keys, skips) AS k (downstream, ordering_key, skip)
			CROSS JOIN LATERAL (
				SELECT * FROM ordering WHERE downstream = k.downstream AND ordering_key = k.ordering_key OFFSET 0
			) o CROSS JOIN LATERAL (
				SELECT d.task_id, d.position, d.status FROM delivery d
				WHERE d.downstream = o.downstream AND d.ordering_key = o.ordering_key AND d.position >= o.head AND d.status IN (0, 2)
				ORDER BY d.position LIMIT 1
			) f
			WHERE k.skip AND f.status = 2
			UNION ALL
			SELECT b.downstream, b.ordering_key, f.task_id, f.position, b.n + 1, b.most
			FROM failed b CROSS JOIN LATERAL (
				SELECT d.task_id, d.position, d.status FROM delivery d
				WHERE d.downstream = b.downstream AND d.ordering_key = b.ordering_key AND d.position > b.position AND d.status IN (0, 2)
				ORDER BY d.position LIMIT 1
			) f
			WHERE f.status = 2 AND b.n < b.most
		), locked AS MATERIALIZED (
			SELECT d.task_id, d.downstream, d.ordering_key, d.position, d.status
			FROM failed f JOIN delivery d ON d.task_id = f.task_id AND d.downstream = f.downstream
			ORDER BY d.task_id, d.downstream
			FOR NO KEY UPDATE OF d
		)
		UPDATE delivery d SET position = -d.position, updated_at = now()
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
			SELECT * FROM ordering
			WHERE downstream = k.downstream AND ordering_key = k.ordering_key AND head IS NOT NULL OFFSET 0
		) o LEFT JOIN LATERAL (
			SELECT d.task_id, d.position, d.status, d.phase, d.attempt FROM delivery d
			WHERE d.downstream = o.downstream AND d.ordering_key = o.ordering_key AND d.position >= o.head AND d.status IN (0, 2)
			ORDER BY d.position LIMIT 1
		) f ON true
	), kept AS (
		UPDATE ordering o SET head = h.position, held_at = CASE WHEN h.holds THEN coalesce(o.held_at, now()) END
		FROM head h
		WHERE o.downstream = h.downstream AND o.ordering_key = h.ordering_key
			AND (h.position IS DISTINCT FROM h.was OR (h.held_at IS NOT NULL) <> h.holds)
	), again AS (
		-- It is to be passed too, by the next look at the key.
		INSERT INTO promotion (downstream, ordering_key)
		SELECT h.downstream, h.ordering_key FROM head h WHERE h.failed AND NOT h.holds
	), alarmed AS (
		INSERT INTO alarm (task_id, downstream, attempt, kind)
		SELECT h.task_id, h.downstream, h.attempt, 'KEY_HELD' FROM head h
		WHERE h.holds AND (h.held_at IS NULL OR h.position <> h.was)
		ON CONFLICT (task_id, downstream, attempt, kind) DO UPDATE
			SET resolved_at = NULL, sent_at = NULL, tries = 0, next_action_at = now(), created_at = now()
			WHERE alarm.resolved_at IS NOT NULL
	), resolved AS (
		UPDATE alarm a SET resolved_at = now()
		FROM head h CROSS JOIN LATERAL (
			SELECT d.task_id FROM delivery d
			WHERE d.downstream = h.downstream AND d.ordering_key = h.ordering_key AND d.position IN (h.was, -h.was) OFFSET 0
		) d
		WHERE h.held_at IS NOT NULL AND (NOT h.holds OR h.position <> h.was)
			AND a.task_id = d.task_id AND a.downstream = h.downstream AND a.kind = 'KEY_HELD' AND a.resolved_at IS NULL
	), locked AS MATERIALIZED (
		SELECT d.task_id, d.downstream, h.lease_ms, greatest(now(), least(coalesce(t.deliver_start_time, now()), d.deliver_before)) AS due,
			d.deliver_before
		FROM head h CROSS JOIN LATERAL (SELECT deliver_start_time FROM task WHERE id = h.task_id OFFSET 0) t
		JOIN delivery d ON d.task_id = h.task_id AND d.downstream = h.downstream
		WHERE h.phase = 'BLOCKED' AND d.phase = 'BLOCKED'
			AND NOT EXISTS (SELECT FROM dependency x WHERE x.task_id = h.task_id AND x.done_at IS NULL)
		ORDER BY d.task_id, d.downstream
		FOR NO KEY UPDATE OF d
	), moved AS (
		UPDATE delivery d SET
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
$$;
