// As run_model.c, in C++: a session that frees itself, and errors as exceptions.
//   c++ run_model.cpp $(pkg-config --cflags --libs tilewright) && ./a.out MODEL.onnx
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "tilewright.h"

namespace {

void check(tilewright_status status) {
    if (status != TILEWRIGHT_STATUS_OK) throw std::runtime_error(tilewright_last_error());
}

class Session {
public:
    explicit Session(const std::string &path) { check(tilewright_compile(path.c_str(), tilewright_options{0}, &session)); }
    ~Session() { tilewright_session_free(session); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    std::vector<tilewright_tensor> inputs() const { return list(tilewright_input_count, tilewright_input); }
    std::vector<tilewright_tensor> outputs() const { return list(tilewright_output_count, tilewright_output); }

    void run(const std::vector<tilewright_buffer> &given, const std::vector<tilewright_buffer> &made) const {
        check(tilewright_run(session, given.data(), given.size(), made.data(), made.size()));
    }

private:
    template <class Count, class Get> std::vector<tilewright_tensor> list(Count count, Get get) const {
        std::size_t n = 0;
        check(count(session, &n));
        std::vector<tilewright_tensor> tensors(n);
        for (std::size_t i = 0; i < n; i++) check(get(session, i, &tensors[i]));
        return tensors;
    }

    tilewright_session session{};
};

// Memory for tensors, 8 bytes at a time, so that every element is aligned.
struct Memory {
    std::vector<std::unique_ptr<double[]>> blocks;
    std::vector<tilewright_buffer> buffers;

    explicit Memory(const std::vector<tilewright_tensor> &tensors) {
        for (const auto &tensor : tensors) {
            blocks.push_back(std::make_unique<double[]>(tensor.bytes / sizeof(double) + 1));
            buffers.push_back({blocks.back().get(), tensor.bytes});
        }
    }
};

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    try {
        const Session session(argv[1]);
        const Memory given(session.inputs()), made(session.outputs());
        session.run(given.buffers, made.buffers);
        for (const auto &tensor : session.outputs()) std::printf("%s: %zu bytes\n", tensor.name, tensor.bytes);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
