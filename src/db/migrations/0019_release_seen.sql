-- by hand
-- Passes the FAILED head of a key if it is the delivery of this task: another one there has not been seen by whoever asks. Null where none is
-- passed. `seen` null, as a process of an earlier version asks: whichever is there. The rest is as before (0009).
CREATE FUNCTION "release_key"(name text, key text, seen text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	passed uuid;
BEGIN
	PERFORM FROM ordering WHERE downstream = name AND ordering_key = key FOR UPDATE;
	UPDATE delivery d SET position = -d.position, updated_at = now()
	FROM (
		SELECT f.* FROM ordering o CROSS JOIN LATERAL (
			SELECT task_id, position, status FROM delivery
			WHERE downstream = name AND ordering_key = key AND position >= o.head AND status IN (0, 2)
			ORDER BY position LIMIT 1
		) f
		WHERE o.downstream = name AND o.ordering_key = key
	) h
	WHERE h.status = 2 AND d.task_id = h.task_id AND d.downstream = name AND d.position = h.position AND d.status = 2
		AND (seen IS NULL OR h.task_id = (SELECT id FROM task WHERE task_no = seen))
	RETURNING d.task_id INTO passed;
	IF passed IS NOT NULL THEN
		UPDATE ordering o SET held_at = NULL, head = (
			SELECT position FROM delivery
			WHERE downstream = name AND ordering_key = key AND position >= o.head AND status IN (0, 2)
			ORDER BY position LIMIT 1
		)
		WHERE o.downstream = name AND o.ordering_key = key;
		UPDATE alarm SET resolved_at = now()
		WHERE task_id = passed AND downstream = name AND kind = 'KEY_HELD' AND resolved_at IS NULL;
		INSERT INTO promotion (downstream, ordering_key) VALUES (name, key);
	END IF;
	RETURN passed;
END
$$;--> statement-breakpoint
CREATE OR REPLACE FUNCTION "release_key"(name text, key text) RETURNS uuid LANGUAGE sql AS $$
	SELECT release_key(name, key, NULL)
$$;
