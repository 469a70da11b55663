//! Runs the programs of `examples/`: each checks its own result.

#[path = "../examples/ahead_of_time.rs"]
mod ahead_of_time;
#[path = "../examples/classify.rs"]
#[allow(dead_code, reason = "its main runs a larger network")]
mod classify;
#[path = "../examples/graph.rs"]
mod graph;
#[path = "../examples/schedule.rs"]
mod schedule;
#[path = "../examples/shared_pool.rs"]
mod shared_pool;

#[test]
fn an_onnx_file_runs() {
    classify::classify("tests/fixtures/operators/conv_batch_norm_relu.onnx").unwrap();
}

#[test]
fn a_graph_built_in_rust_runs() {
    graph::main().unwrap();
}

#[test]
fn a_schedule_by_hand_agrees_with_the_chosen_order() {
    schedule::main().unwrap();
}

#[test]
fn a_saved_module_runs() {
    ahead_of_time::main().unwrap();
}

#[test]
fn sessions_share_a_pool() {
    shared_pool::main().unwrap();
}
