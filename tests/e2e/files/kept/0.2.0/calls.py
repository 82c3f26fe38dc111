import gc
import threading


def leaf():
    return len(())


def outer():
    for _ in range(2500):
        leaf()


gc.collect()
thread = threading.Thread(target=outer, name="second thread")
thread.start()
thread.join()
outer()
