/* Each kind of NVTX call once, with names that nothing else has. Prints the depths that pushes and pops return. */
#define _GNU_SOURCE
#include "client.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static nvtxRangeId_t crossing;
static nvtxDomainHandle_t domain;

static void* other_thread(void* unused) {
  nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "the other one");
  nvtxRangePushA("in another thread");
  nvtxDomainRangeEnd(domain, crossing);
  nvtxRangePop();
  return unused;
}

int main(void) {
  int depths[8], n = 0;
  depths[n++] = nvtxRangePushA("outer");
  depths[n++] = nvtxRangePushW(L"w\u00efde \u20ac \U0001f600");
  depths[n++] = nvtxRangePop();

  domain = nvtxDomainCreateA("library");
  nvtxDomainNameCategoryA(domain, 7, "loading");
  nvtxEventAttributes_t a = attributes_of("rich");
  a.category = 7;
  a.colorType = NVTX_COLOR_ARGB;
  a.color = 0xff10a0f0;
  a.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  a.payload.llValue = -5;
  depths[n++] = nvtxDomainRangePushEx(domain, &a);
  nvtxRangePop(); /* of the default domain, in the middle */
  a = attributes_of(NULL);
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = nvtxDomainRegisterStringA(domain, "registered");
  a.category = 8;
  a.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
  a.payload.dValue = 0.25;
  depths[n++] = nvtxDomainRangePushEx(domain, &a);
  depths[n++] = nvtxDomainRangePop(domain);
  depths[n++] = nvtxDomainRangePop(domain);
  depths[n++] = nvtxRangePop(); /* nothing is open */

  nvtxMarkA("plain mark");
  a = attributes_of("rich mark");
  a.payloadType = NVTX_PAYLOAD_TYPE_FLOAT;
  a.payload.fValue = 1.5f;
  nvtxDomainMarkEx(domain, &a);

  a = attributes_of("from thread to thread");
  crossing = nvtxDomainRangeStartEx(domain, &a);
  nvtxRangeId_t here = nvtxRangeStartA("started");
  nvtxRangePushA("across");
  nvtxRangeEnd(here);
  nvtxRangePop();
  pthread_t thread;
  pthread_create(&thread, NULL, other_thread, NULL);
  pthread_join(thread, NULL);
  nvtxRangePushEx(NULL);
  nvtxRangePop();
  nvtxRangePushA("never popped");
  for (int i = 0; i < n; ++i) printf("%d ", depths[i]);
  printf("\n");
  return 0;
}
