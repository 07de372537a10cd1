// The header in C++: an association that ends with its scope.

#include <flashloom.h>

#include <cstdio>
#include <memory>
#include <vector>

template <auto Free> struct Deleter {
    template <class T> void operator()(T *object) const { Free(object); }
};

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    std::unique_ptr<fl_options, Deleter<fl_options_free>> options{fl_options_new()};
    fl_error error{};
    fl_namespace *opened = nullptr;
    if (fl_options_set(options.get(), "trsvcid", argv[1], &error) ||
        fl_options_set(options.get(), "subnqn", argv[2], &error) ||
        fl_namespace_open(options.get(), 1, &opened, &error)) {
        std::fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    std::unique_ptr<fl_namespace, Deleter<fl_namespace_close>> ns{opened};
    std::vector<char> block(512);
    return fl_read(ns.get(), block.data(), 0, 1, &error) == FL_OK ? 0 : 1;
}
