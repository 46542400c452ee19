//! The consistency conditions of clauses 3.3.2.1 to 3.3.2.4, which hold after
//! loading and after any number of transactions. A run whose database breaks
//! one measured something else than TPC-C.

use crate::harness::error::{Error, Result, Violation};
use crate::workload::postgres::Session;

/// A condition and a query that returns one line of text per violation.
struct Condition {
    clause: &'static str,
    demand: &'static str,
    violations: &'static str,
}

/// Counts and extremes come from one pass per table. FULL JOIN finds a district
/// that a table lacks altogether.
const CONDITIONS: [Condition; 4] = [
    Condition {
        clause: "3.3.2.1",
        demand: "W_YTD = sum(D_YTD)",
        violations: "SELECT format('warehouse %s: %s, districts: %s', w_id, w_ytd, total) \
            FROM warehouse LEFT JOIN \
            (SELECT d_w_id, sum(d_ytd) AS total FROM district GROUP BY d_w_id) d ON d_w_id = w_id \
            WHERE w_ytd IS DISTINCT FROM total ORDER BY w_id LIMIT 1",
    },
    Condition {
        clause: "3.3.2.2",
        demand: "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
        violations: "SELECT format('warehouse %s, district %s: next order %s, last order %s, \
            last new order %s', d_w_id, d_id, d_next_o_id, last_order, last_new) FROM district \
            LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last_order FROM oorder \
            GROUP BY o_w_id, o_d_id) o ON o_w_id = d_w_id AND o_d_id = d_id \
            LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_new FROM new_order \
            GROUP BY no_w_id, no_d_id) n ON no_w_id = d_w_id AND no_d_id = d_id \
            WHERE d_next_o_id - 1 IS DISTINCT FROM last_order \
            OR (last_new IS NOT NULL AND last_new <> last_order) ORDER BY d_w_id, d_id LIMIT 1",
    },
    Condition {
        clause: "3.3.2.3",
        demand: "max(NO_O_ID) - min(NO_O_ID) + 1 = number of new orders",
        violations: "SELECT format('warehouse %s, district %s: %s to %s are %s', \
            no_w_id, no_d_id, min(no_o_id), max(no_o_id), count(*)) FROM new_order \
            GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*) \
            ORDER BY no_w_id, no_d_id LIMIT 1",
    },
    Condition {
        clause: "3.3.2.4",
        demand: "sum(O_OL_CNT) = number of order lines",
        violations: "SELECT format('warehouse %s, district %s: orders have %s lines, there are \
            %s', coalesce(o_w_id, ol_w_id), coalesce(o_d_id, ol_d_id), said, found) \
            FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM oorder \
            GROUP BY o_w_id, o_d_id) o FULL JOIN \
            (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line \
            GROUP BY ol_w_id, ol_d_id) l ON o_w_id = ol_w_id AND o_d_id = ol_d_id \
            WHERE said IS DISTINCT FROM found ORDER BY 1 LIMIT 1",
    },
];

/// Checks all conditions; the first that is broken is the error.
pub fn consistency(session: &Session) -> Result<()> {
    for Condition {
        clause,
        demand,
        violations,
    } in CONDITIONS
    {
        let row = session
            .wait(session.client.query_opt(violations, &[]))
            .map_err(Error::sql(format!("checking clause {clause}")))?;
        if let Some(row) = row {
            return Err(Error::Inconsistent(Violation {
                clause,
                demand,
                place: row.get(0),
            }));
        }
    }
    Ok(())
}
