//! The SQL of the five transactions, in BenchBase's wording, prepared once per
//! terminal.

use tokio_postgres::{Client, Error, Statement};

/// Declares the statements once: their names, their text, and the function
/// that prepares them all.
macro_rules! statements {
    ($($name:ident: $sql:expr;)*) => {
        /// A terminal's prepared statements.
        pub(super) struct Statements {
            $(pub(super) $name: Statement,)*
        }

        impl Statements {
            /// Prepares all statements on a connection.
            pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
                Ok(Statements { $($name: client.prepare($sql).await?,)* })
            }
        }
    };
}

statements! {
    // New order (clause 2.4).
    new_order_customer: "SELECT c_discount, c_last, c_credit FROM customer \
        WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    new_order_warehouse: "SELECT w_tax FROM warehouse WHERE w_id = $1";
    new_order_district: "SELECT d_next_o_id, d_tax FROM district \
        WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE";
    advance_district: "UPDATE district SET d_next_o_id = d_next_o_id + 1 \
        WHERE d_w_id = $1 AND d_id = $2";
    insert_order: "INSERT INTO oorder \
        (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    insert_new_order: "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)";
    item: "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1";
    stock: "SELECT s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, \
        s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10 FROM stock \
        WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE";
    update_stock: "UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, \
        s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $3 \
        WHERE s_i_id = $4 AND s_w_id = $5";
    insert_line: "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, \
        ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

    // Payment (clause 2.5).
    pay_warehouse: "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2";
    payment_warehouse: "SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name \
        FROM warehouse WHERE w_id = $1";
    pay_district: "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3";
    payment_district: "SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name \
        FROM district WHERE d_w_id = $1 AND d_id = $2";
    customer_by_number: "SELECT c_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, \
        c_state, c_zip, c_phone, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, \
        c_payment_cnt, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    customer_by_name: "SELECT c_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, \
        c_state, c_zip, c_phone, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, \
        c_payment_cnt, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 \
        ORDER BY c_first";
    customer_data: "SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    pay_customer: "UPDATE customer SET c_balance = $1, c_ytd_payment = $2, c_payment_cnt = $3 \
        WHERE c_w_id = $4 AND c_d_id = $5 AND c_id = $6";
    pay_customer_data: "UPDATE customer SET c_balance = $1, c_ytd_payment = $2, \
        c_payment_cnt = $3, c_data = $7 WHERE c_w_id = $4 AND c_d_id = $5 AND c_id = $6";
    insert_history: "INSERT INTO history \
        (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

    // Order status (clause 2.6).
    last_order: "SELECT o_id, o_carrier_id, o_entry_d FROM oorder \
        WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1";
    order_lines: "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
        FROM order_line WHERE ol_o_id = $1 AND ol_d_id = $2 AND ol_w_id = $3";

    // Delivery (clause 2.7).
    oldest_new_order: "SELECT no_o_id FROM new_order WHERE no_d_id = $1 AND no_w_id = $2 \
        ORDER BY no_o_id ASC LIMIT 1";
    delete_new_order: "DELETE FROM new_order \
        WHERE no_o_id = $1 AND no_d_id = $2 AND no_w_id = $3";
    order_customer: "SELECT o_c_id FROM oorder WHERE o_id = $1 AND o_d_id = $2 AND o_w_id = $3";
    deliver_order: "UPDATE oorder SET o_carrier_id = $1 \
        WHERE o_id = $2 AND o_d_id = $3 AND o_w_id = $4";
    deliver_lines: "UPDATE order_line SET ol_delivery_d = $1 \
        WHERE ol_o_id = $2 AND ol_d_id = $3 AND ol_w_id = $4";
    order_amount: "SELECT sum(ol_amount) FROM order_line \
        WHERE ol_o_id = $1 AND ol_d_id = $2 AND ol_w_id = $3";
    deliver_customer: "UPDATE customer SET c_balance = c_balance + $1, \
        c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4";

    // Stock level (clause 2.8).
    next_order: "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2";
    low_stock: "SELECT count(DISTINCT s_i_id) FROM order_line, stock \
        WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $4 \
        AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $5";
}
