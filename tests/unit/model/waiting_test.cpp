#include "formats/trace/waiting.h"

#include <doctest/doctest.h>

namespace waiting_test {

using torchprof::formats::is_waiting;

TEST_CASE("waits are known by their names, as torchprof and torch.profiler write them") {
  for (const char* name :
       {"threading.py(295): wait", "/usr/lib/python3.12/threading.py(1): wait",
        "C:\\Python312\\Lib\\multiprocessing\\connection.py(300): _recv",
        "/opt/conda/lib/python3.11/concurrent/futures/thread.py(69): _worker", "selectors.py(451): select",
        "torch/distributed/elastic/agent/server/api.py(834): _invoke_run",
        "/site-packages/torch/_inductor/compile_worker/subproc_pool.py(60): _recv_msg",
        "<built-in method acquire of _thread.lock object>",
        "<built-in method acquire of _thread.lock object at 0x7f3c1c0a9540>",
        "<built-in method poll of select.epoll object at 0x7f3c1c0a9540>", "<built-in function sleep>"})
    CHECK_MESSAGE(is_waiting(name), name);
}

TEST_CASE("work is not taken for waiting, whatever its name looks like") {
  for (const char* name : {"",
                           "wait",
                           "aten::wait",
                           "(1): wait",
                           "threading.py: wait",
                           "threading.py(295): notify",
                           "/home/me/src/threading.py(3): wait",
                           "/dist-packages/hypothesis/utils/threading.py(3): wait",
                           "my_threading.py(3): wait",
                           "/lib/python3.12my_threading.py(3): wait",
                           "train.py(3): select",
                           "connection.py(300): _recv",
                           "queue.py(154): get",
                           "<built-in method get of dict object>",
                           "<built-in method acquire of Camera object at 0x7f3c1c0a9540>",
                           "<built-in method acquire>",
                           "<built-in function read>",
                           "<built-in function sleepy>",
                           "<built-in function ",
                           "cudaStreamSynchronize"})
    CHECK_MESSAGE(!is_waiting(name), name);
}

}  // namespace waiting_test
