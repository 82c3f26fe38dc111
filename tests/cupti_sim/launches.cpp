// A program without Python or torch that uses CUDA: THREADS, LAUNCHES of each, STREAMS, DEVICES.
#include <cstdlib>

extern "C" int simInit(int devices);
extern "C" double simStorm(int threads, int each, int streams, int devices);

int main(int, char** arguments) {
  simInit(std::atoi(arguments[4]));
  simStorm(std::atoi(arguments[1]), std::atoi(arguments[2]), std::atoi(arguments[3]), std::atoi(arguments[4]));
}
