//! Values that are known before a branch, behind it.

use super::check_text;

#[test]
fn what_a_branch_writes_and_reads_again_is_read_behind_it() {
    for (place, inside) in [("S[0]", "S[0] = B[i]; C[i] = S[0];"), ("S[i]", "S[i] = B[i]; C[i] = (S[i] + S[0]);")] {
        check_text(&format!(
            "kernel p {{ B: f64[16] argument 0; S: f64[17] argument 1 written; C: f64[16] argument 2 written; D: f64[16] argument 3 written;
             parallel once in 0..1 {{ for t in 0..2 {{ unroll i in 0..4 {{
               C[i + 8] = {place};
               if t - 1 >= 0 {{ {inside} }}
               D[i] = {place};
             }} }} }} }}"
        ));
    }
}
