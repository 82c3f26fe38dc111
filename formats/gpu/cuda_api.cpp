#include "formats/gpu/cuda_api.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

namespace torchprof::formats {
namespace {

struct Name {
  uint16_t cbid;
  const char* name;
};

// clang-format off
// CUpti_runtime_api_trace_cbid of CUDA 13.0. It has all functions since 11.0 under the same numbers. The names are
// without the version at their end, as Kineto writes them.
constexpr Name kRuntime[] = {
    {1, "cudaDriverGetVersion"}, {2, "cudaRuntimeGetVersion"}, {3, "cudaGetDeviceCount"},
    {4, "cudaGetDeviceProperties"}, {5, "cudaChooseDevice"}, {6, "cudaGetChannelDesc"}, {7, "cudaCreateChannelDesc"},
    {8, "cudaConfigureCall"}, {9, "cudaSetupArgument"}, {10, "cudaGetLastError"}, {11, "cudaPeekAtLastError"},
    {12, "cudaGetErrorString"}, {13, "cudaLaunch"}, {14, "cudaFuncSetCacheConfig"}, {15, "cudaFuncGetAttributes"},
    {16, "cudaSetDevice"}, {17, "cudaGetDevice"}, {18, "cudaSetValidDevices"}, {19, "cudaSetDeviceFlags"},
    {20, "cudaMalloc"}, {21, "cudaMallocPitch"}, {22, "cudaFree"}, {23, "cudaMallocArray"}, {24, "cudaFreeArray"},
    {25, "cudaMallocHost"}, {26, "cudaFreeHost"}, {27, "cudaHostAlloc"}, {28, "cudaHostGetDevicePointer"},
    {29, "cudaHostGetFlags"}, {30, "cudaMemGetInfo"}, {31, "cudaMemcpy"}, {32, "cudaMemcpy2D"},
    {33, "cudaMemcpyToArray"}, {34, "cudaMemcpy2DToArray"}, {35, "cudaMemcpyFromArray"},
    {36, "cudaMemcpy2DFromArray"}, {37, "cudaMemcpyArrayToArray"}, {38, "cudaMemcpy2DArrayToArray"},
    {39, "cudaMemcpyToSymbol"}, {40, "cudaMemcpyFromSymbol"}, {41, "cudaMemcpyAsync"}, {42, "cudaMemcpyToArrayAsync"},
    {43, "cudaMemcpyFromArrayAsync"}, {44, "cudaMemcpy2DAsync"}, {45, "cudaMemcpy2DToArrayAsync"},
    {46, "cudaMemcpy2DFromArrayAsync"}, {47, "cudaMemcpyToSymbolAsync"}, {48, "cudaMemcpyFromSymbolAsync"},
    {49, "cudaMemset"}, {50, "cudaMemset2D"}, {51, "cudaMemsetAsync"}, {52, "cudaMemset2DAsync"},
    {53, "cudaGetSymbolAddress"}, {54, "cudaGetSymbolSize"}, {55, "cudaBindTexture"}, {56, "cudaBindTexture2D"},
    {57, "cudaBindTextureToArray"}, {58, "cudaUnbindTexture"}, {59, "cudaGetTextureAlignmentOffset"},
    {60, "cudaGetTextureReference"}, {61, "cudaBindSurfaceToArray"}, {62, "cudaGetSurfaceReference"},
    {63, "cudaGLSetGLDevice"}, {64, "cudaGLRegisterBufferObject"}, {65, "cudaGLMapBufferObject"},
    {66, "cudaGLUnmapBufferObject"}, {67, "cudaGLUnregisterBufferObject"}, {68, "cudaGLSetBufferObjectMapFlags"},
    {69, "cudaGLMapBufferObjectAsync"}, {70, "cudaGLUnmapBufferObjectAsync"}, {71, "cudaWGLGetDevice"},
    {72, "cudaGraphicsGLRegisterImage"}, {73, "cudaGraphicsGLRegisterBuffer"}, {74, "cudaGraphicsUnregisterResource"},
    {75, "cudaGraphicsResourceSetMapFlags"}, {76, "cudaGraphicsMapResources"}, {77, "cudaGraphicsUnmapResources"},
    {78, "cudaGraphicsResourceGetMappedPointer"}, {79, "cudaGraphicsSubResourceGetMappedArray"},
    {80, "cudaVDPAUGetDevice"}, {81, "cudaVDPAUSetVDPAUDevice"}, {82, "cudaGraphicsVDPAURegisterVideoSurface"},
    {83, "cudaGraphicsVDPAURegisterOutputSurface"}, {84, "cudaD3D11GetDevice"}, {85, "cudaD3D11GetDevices"},
    {86, "cudaD3D11SetDirect3DDevice"}, {87, "cudaGraphicsD3D11RegisterResource"}, {88, "cudaD3D10GetDevice"},
    {89, "cudaD3D10GetDevices"}, {90, "cudaD3D10SetDirect3DDevice"}, {91, "cudaGraphicsD3D10RegisterResource"},
    {92, "cudaD3D10RegisterResource"}, {93, "cudaD3D10UnregisterResource"}, {94, "cudaD3D10MapResources"},
    {95, "cudaD3D10UnmapResources"}, {96, "cudaD3D10ResourceSetMapFlags"},
    {97, "cudaD3D10ResourceGetSurfaceDimensions"}, {98, "cudaD3D10ResourceGetMappedArray"},
    {99, "cudaD3D10ResourceGetMappedPointer"}, {100, "cudaD3D10ResourceGetMappedSize"},
    {101, "cudaD3D10ResourceGetMappedPitch"}, {102, "cudaD3D9GetDevice"}, {103, "cudaD3D9GetDevices"},
    {104, "cudaD3D9SetDirect3DDevice"}, {105, "cudaD3D9GetDirect3DDevice"}, {106, "cudaGraphicsD3D9RegisterResource"},
    {107, "cudaD3D9RegisterResource"}, {108, "cudaD3D9UnregisterResource"}, {109, "cudaD3D9MapResources"},
    {110, "cudaD3D9UnmapResources"}, {111, "cudaD3D9ResourceSetMapFlags"},
    {112, "cudaD3D9ResourceGetSurfaceDimensions"}, {113, "cudaD3D9ResourceGetMappedArray"},
    {114, "cudaD3D9ResourceGetMappedPointer"}, {115, "cudaD3D9ResourceGetMappedSize"},
    {116, "cudaD3D9ResourceGetMappedPitch"}, {117, "cudaD3D9Begin"}, {118, "cudaD3D9End"},
    {119, "cudaD3D9RegisterVertexBuffer"}, {120, "cudaD3D9UnregisterVertexBuffer"}, {121, "cudaD3D9MapVertexBuffer"},
    {122, "cudaD3D9UnmapVertexBuffer"}, {123, "cudaThreadExit"}, {124, "cudaSetDoubleForDevice"},
    {125, "cudaSetDoubleForHost"}, {126, "cudaThreadSynchronize"}, {127, "cudaThreadGetLimit"},
    {128, "cudaThreadSetLimit"}, {129, "cudaStreamCreate"}, {130, "cudaStreamDestroy"},
    {131, "cudaStreamSynchronize"}, {132, "cudaStreamQuery"}, {133, "cudaEventCreate"},
    {134, "cudaEventCreateWithFlags"}, {135, "cudaEventRecord"}, {136, "cudaEventDestroy"},
    {137, "cudaEventSynchronize"}, {138, "cudaEventQuery"}, {139, "cudaEventElapsedTime"}, {140, "cudaMalloc3D"},
    {141, "cudaMalloc3DArray"}, {142, "cudaMemset3D"}, {143, "cudaMemset3DAsync"}, {144, "cudaMemcpy3D"},
    {145, "cudaMemcpy3DAsync"}, {146, "cudaThreadSetCacheConfig"}, {147, "cudaStreamWaitEvent"},
    {148, "cudaD3D11GetDirect3DDevice"}, {149, "cudaD3D10GetDirect3DDevice"}, {150, "cudaThreadGetCacheConfig"},
    {151, "cudaPointerGetAttributes"}, {152, "cudaHostRegister"}, {153, "cudaHostUnregister"},
    {154, "cudaDeviceCanAccessPeer"}, {155, "cudaDeviceEnablePeerAccess"}, {156, "cudaDeviceDisablePeerAccess"},
    {157, "cudaPeerRegister"}, {158, "cudaPeerUnregister"}, {159, "cudaPeerGetDevicePointer"},
    {160, "cudaMemcpyPeer"}, {161, "cudaMemcpyPeerAsync"}, {162, "cudaMemcpy3DPeer"}, {163, "cudaMemcpy3DPeerAsync"},
    {164, "cudaDeviceReset"}, {165, "cudaDeviceSynchronize"}, {166, "cudaDeviceGetLimit"},
    {167, "cudaDeviceSetLimit"}, {168, "cudaDeviceGetCacheConfig"}, {169, "cudaDeviceSetCacheConfig"},
    {170, "cudaProfilerInitialize"}, {171, "cudaProfilerStart"}, {172, "cudaProfilerStop"},
    {173, "cudaDeviceGetByPCIBusId"}, {174, "cudaDeviceGetPCIBusId"}, {175, "cudaGLGetDevices"},
    {176, "cudaIpcGetEventHandle"}, {177, "cudaIpcOpenEventHandle"}, {178, "cudaIpcGetMemHandle"},
    {179, "cudaIpcOpenMemHandle"}, {180, "cudaIpcCloseMemHandle"}, {181, "cudaArrayGetInfo"},
    {182, "cudaFuncSetSharedMemConfig"}, {183, "cudaDeviceGetSharedMemConfig"}, {184, "cudaDeviceSetSharedMemConfig"},
    {185, "cudaCreateTextureObject"}, {186, "cudaDestroyTextureObject"}, {187, "cudaGetTextureObjectResourceDesc"},
    {188, "cudaGetTextureObjectTextureDesc"}, {189, "cudaCreateSurfaceObject"}, {190, "cudaDestroySurfaceObject"},
    {191, "cudaGetSurfaceObjectResourceDesc"}, {192, "cudaMallocMipmappedArray"}, {193, "cudaGetMipmappedArrayLevel"},
    {194, "cudaFreeMipmappedArray"}, {195, "cudaBindTextureToMipmappedArray"},
    {196, "cudaGraphicsResourceGetMappedMipmappedArray"}, {197, "cudaStreamAddCallback"},
    {198, "cudaStreamCreateWithFlags"}, {199, "cudaGetTextureObjectResourceViewDesc"},
    {200, "cudaDeviceGetAttribute"}, {201, "cudaStreamDestroy"}, {202, "cudaStreamCreateWithPriority"},
    {203, "cudaStreamGetPriority"}, {204, "cudaStreamGetFlags"}, {205, "cudaDeviceGetStreamPriorityRange"},
    {206, "cudaMallocManaged"}, {207, "cudaOccupancyMaxActiveBlocksPerMultiprocessor"},
    {208, "cudaStreamAttachMemAsync"}, {209, "cudaGetErrorName"},
    {210, "cudaOccupancyMaxActiveBlocksPerMultiprocessor"}, {211, "cudaLaunchKernel"}, {212, "cudaGetDeviceFlags"},
    {213, "cudaLaunch_ptsz"}, {214, "cudaLaunchKernel_ptsz"}, {215, "cudaMemcpy_ptds"}, {216, "cudaMemcpy2D_ptds"},
    {217, "cudaMemcpyToArray_ptds"}, {218, "cudaMemcpy2DToArray_ptds"}, {219, "cudaMemcpyFromArray_ptds"},
    {220, "cudaMemcpy2DFromArray_ptds"}, {221, "cudaMemcpyArrayToArray_ptds"}, {222, "cudaMemcpy2DArrayToArray_ptds"},
    {223, "cudaMemcpyToSymbol_ptds"}, {224, "cudaMemcpyFromSymbol_ptds"}, {225, "cudaMemcpyAsync_ptsz"},
    {226, "cudaMemcpyToArrayAsync_ptsz"}, {227, "cudaMemcpyFromArrayAsync_ptsz"}, {228, "cudaMemcpy2DAsync_ptsz"},
    {229, "cudaMemcpy2DToArrayAsync_ptsz"}, {230, "cudaMemcpy2DFromArrayAsync_ptsz"},
    {231, "cudaMemcpyToSymbolAsync_ptsz"}, {232, "cudaMemcpyFromSymbolAsync_ptsz"}, {233, "cudaMemset_ptds"},
    {234, "cudaMemset2D_ptds"}, {235, "cudaMemsetAsync_ptsz"}, {236, "cudaMemset2DAsync_ptsz"},
    {237, "cudaStreamGetPriority_ptsz"}, {238, "cudaStreamGetFlags_ptsz"}, {239, "cudaStreamSynchronize_ptsz"},
    {240, "cudaStreamQuery_ptsz"}, {241, "cudaStreamAttachMemAsync_ptsz"}, {242, "cudaEventRecord_ptsz"},
    {243, "cudaMemset3D_ptds"}, {244, "cudaMemset3DAsync_ptsz"}, {245, "cudaMemcpy3D_ptds"},
    {246, "cudaMemcpy3DAsync_ptsz"}, {247, "cudaStreamWaitEvent_ptsz"}, {248, "cudaStreamAddCallback_ptsz"},
    {249, "cudaMemcpy3DPeer_ptds"}, {250, "cudaMemcpy3DPeerAsync_ptsz"},
    {251, "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"}, {252, "cudaMemPrefetchAsync"},
    {253, "cudaMemPrefetchAsync_ptsz"}, {254, "cudaMemAdvise"}, {255, "cudaDeviceGetP2PAttribute"},
    {256, "cudaGraphicsEGLRegisterImage"}, {257, "cudaEGLStreamConsumerConnect"},
    {258, "cudaEGLStreamConsumerDisconnect"}, {259, "cudaEGLStreamConsumerAcquireFrame"},
    {260, "cudaEGLStreamConsumerReleaseFrame"}, {261, "cudaEGLStreamProducerConnect"},
    {262, "cudaEGLStreamProducerDisconnect"}, {263, "cudaEGLStreamProducerPresentFrame"},
    {264, "cudaEGLStreamProducerReturnFrame"}, {265, "cudaGraphicsResourceGetMappedEglFrame"},
    {266, "cudaMemRangeGetAttribute"}, {267, "cudaMemRangeGetAttributes"},
    {268, "cudaEGLStreamConsumerConnectWithFlags"}, {269, "cudaLaunchCooperativeKernel"},
    {270, "cudaLaunchCooperativeKernel_ptsz"}, {271, "cudaEventCreateFromEGLSync"},
    {272, "cudaLaunchCooperativeKernelMultiDevice"}, {273, "cudaFuncSetAttribute"}, {274, "cudaImportExternalMemory"},
    {275, "cudaExternalMemoryGetMappedBuffer"}, {276, "cudaExternalMemoryGetMappedMipmappedArray"},
    {277, "cudaDestroyExternalMemory"}, {278, "cudaImportExternalSemaphore"},
    {279, "cudaSignalExternalSemaphoresAsync"}, {280, "cudaSignalExternalSemaphoresAsync_ptsz"},
    {281, "cudaWaitExternalSemaphoresAsync"}, {282, "cudaWaitExternalSemaphoresAsync_ptsz"},
    {283, "cudaDestroyExternalSemaphore"}, {284, "cudaLaunchHostFunc"}, {285, "cudaLaunchHostFunc_ptsz"},
    {286, "cudaGraphCreate"}, {287, "cudaGraphKernelNodeGetParams"}, {288, "cudaGraphKernelNodeSetParams"},
    {289, "cudaGraphAddKernelNode"}, {290, "cudaGraphAddMemcpyNode"}, {291, "cudaGraphMemcpyNodeGetParams"},
    {292, "cudaGraphMemcpyNodeSetParams"}, {293, "cudaGraphAddMemsetNode"}, {294, "cudaGraphMemsetNodeGetParams"},
    {295, "cudaGraphMemsetNodeSetParams"}, {296, "cudaGraphAddHostNode"}, {297, "cudaGraphHostNodeGetParams"},
    {298, "cudaGraphAddChildGraphNode"}, {299, "cudaGraphChildGraphNodeGetGraph"}, {300, "cudaGraphAddEmptyNode"},
    {301, "cudaGraphClone"}, {302, "cudaGraphNodeFindInClone"}, {303, "cudaGraphNodeGetType"},
    {304, "cudaGraphGetRootNodes"}, {305, "cudaGraphNodeGetDependencies"}, {306, "cudaGraphNodeGetDependentNodes"},
    {307, "cudaGraphAddDependencies"}, {308, "cudaGraphRemoveDependencies"}, {309, "cudaGraphDestroyNode"},
    {310, "cudaGraphInstantiate"}, {311, "cudaGraphLaunch"}, {312, "cudaGraphLaunch_ptsz"},
    {313, "cudaGraphExecDestroy"}, {314, "cudaGraphDestroy"}, {315, "cudaStreamBeginCapture"},
    {316, "cudaStreamBeginCapture_ptsz"}, {317, "cudaStreamIsCapturing"}, {318, "cudaStreamIsCapturing_ptsz"},
    {319, "cudaStreamEndCapture"}, {320, "cudaStreamEndCapture_ptsz"}, {321, "cudaGraphHostNodeSetParams"},
    {322, "cudaGraphGetNodes"}, {323, "cudaGraphGetEdges"}, {324, "cudaStreamGetCaptureInfo"},
    {325, "cudaStreamGetCaptureInfo_ptsz"}, {326, "cudaGraphExecKernelNodeSetParams"},
    {327, "cudaThreadExchangeStreamCaptureMode"}, {328, "cudaDeviceGetNvSciSyncAttributes"},
    {329, "cudaOccupancyAvailableDynamicSMemPerBlock"}, {330, "cudaStreamSetFlags"}, {331, "cudaStreamSetFlags_ptsz"},
    {332, "cudaGraphExecMemcpyNodeSetParams"}, {333, "cudaGraphExecMemsetNodeSetParams"},
    {334, "cudaGraphExecHostNodeSetParams"}, {335, "cudaGraphExecUpdate"}, {336, "cudaGetFuncBySymbol"},
    {337, "cudaCtxResetPersistingL2Cache"}, {338, "cudaGraphKernelNodeCopyAttributes"},
    {339, "cudaGraphKernelNodeGetAttribute"}, {340, "cudaGraphKernelNodeSetAttribute"},
    {341, "cudaStreamCopyAttributes"}, {342, "cudaStreamCopyAttributes_ptsz"}, {343, "cudaStreamGetAttribute"},
    {344, "cudaStreamGetAttribute_ptsz"}, {345, "cudaStreamSetAttribute"}, {346, "cudaStreamSetAttribute_ptsz"},
    {347, "cudaDeviceGetTexture1DLinearMaxWidth"}, {348, "cudaGraphUpload"}, {349, "cudaGraphUpload_ptsz"},
    {350, "cudaGraphAddMemcpyNodeToSymbol"}, {351, "cudaGraphAddMemcpyNodeFromSymbol"},
    {352, "cudaGraphAddMemcpyNode1D"}, {353, "cudaGraphMemcpyNodeSetParamsToSymbol"},
    {354, "cudaGraphMemcpyNodeSetParamsFromSymbol"}, {355, "cudaGraphMemcpyNodeSetParams1D"},
    {356, "cudaGraphExecMemcpyNodeSetParamsToSymbol"}, {357, "cudaGraphExecMemcpyNodeSetParamsFromSymbol"},
    {358, "cudaGraphExecMemcpyNodeSetParams1D"}, {359, "cudaArrayGetSparseProperties"},
    {360, "cudaMipmappedArrayGetSparseProperties"}, {361, "cudaGraphExecChildGraphNodeSetParams"},
    {362, "cudaGraphAddEventRecordNode"}, {363, "cudaGraphEventRecordNodeGetEvent"},
    {364, "cudaGraphEventRecordNodeSetEvent"}, {365, "cudaGraphAddEventWaitNode"},
    {366, "cudaGraphEventWaitNodeGetEvent"}, {367, "cudaGraphEventWaitNodeSetEvent"},
    {368, "cudaGraphExecEventRecordNodeSetEvent"}, {369, "cudaGraphExecEventWaitNodeSetEvent"},
    {370, "cudaEventRecordWithFlags"}, {371, "cudaEventRecordWithFlags_ptsz"}, {372, "cudaDeviceGetDefaultMemPool"},
    {373, "cudaMallocAsync"}, {374, "cudaMallocAsync_ptsz"}, {375, "cudaFreeAsync"}, {376, "cudaFreeAsync_ptsz"},
    {377, "cudaMemPoolTrimTo"}, {378, "cudaMemPoolSetAttribute"}, {379, "cudaMemPoolGetAttribute"},
    {380, "cudaMemPoolSetAccess"}, {381, "cudaArrayGetPlane"}, {382, "cudaMemPoolGetAccess"},
    {383, "cudaMemPoolCreate"}, {384, "cudaMemPoolDestroy"}, {385, "cudaDeviceSetMemPool"},
    {386, "cudaDeviceGetMemPool"}, {387, "cudaMemPoolExportToShareableHandle"},
    {388, "cudaMemPoolImportFromShareableHandle"}, {389, "cudaMemPoolExportPointer"},
    {390, "cudaMemPoolImportPointer"}, {391, "cudaMallocFromPoolAsync"}, {392, "cudaMallocFromPoolAsync_ptsz"},
    {393, "cudaSignalExternalSemaphoresAsync"}, {394, "cudaSignalExternalSemaphoresAsync_ptsz"},
    {395, "cudaWaitExternalSemaphoresAsync"}, {396, "cudaWaitExternalSemaphoresAsync_ptsz"},
    {397, "cudaGraphAddExternalSemaphoresSignalNode"}, {398, "cudaGraphExternalSemaphoresSignalNodeGetParams"},
    {399, "cudaGraphExternalSemaphoresSignalNodeSetParams"}, {400, "cudaGraphAddExternalSemaphoresWaitNode"},
    {401, "cudaGraphExternalSemaphoresWaitNodeGetParams"}, {402, "cudaGraphExternalSemaphoresWaitNodeSetParams"},
    {403, "cudaGraphExecExternalSemaphoresSignalNodeSetParams"},
    {404, "cudaGraphExecExternalSemaphoresWaitNodeSetParams"}, {405, "cudaDeviceFlushGPUDirectRDMAWrites"},
    {406, "cudaGetDriverEntryPoint"}, {407, "cudaGetDriverEntryPoint_ptsz"}, {408, "cudaGraphDebugDotPrint"},
    {409, "cudaStreamGetCaptureInfo_v2"}, {410, "cudaStreamGetCaptureInfo_v2_ptsz"},
    {411, "cudaStreamUpdateCaptureDependencies"}, {412, "cudaStreamUpdateCaptureDependencies_ptsz"},
    {413, "cudaUserObjectCreate"}, {414, "cudaUserObjectRetain"}, {415, "cudaUserObjectRelease"},
    {416, "cudaGraphRetainUserObject"}, {417, "cudaGraphReleaseUserObject"}, {418, "cudaGraphInstantiateWithFlags"},
    {419, "cudaGraphAddMemAllocNode"}, {420, "cudaGraphMemAllocNodeGetParams"}, {421, "cudaGraphAddMemFreeNode"},
    {422, "cudaGraphMemFreeNodeGetParams"}, {423, "cudaDeviceGraphMemTrim"}, {424, "cudaDeviceGetGraphMemAttribute"},
    {425, "cudaDeviceSetGraphMemAttribute"}, {426, "cudaGraphNodeSetEnabled"}, {427, "cudaGraphNodeGetEnabled"},
    {428, "cudaArrayGetMemoryRequirements"}, {429, "cudaMipmappedArrayGetMemoryRequirements"},
    {430, "cudaLaunchKernelExC"}, {431, "cudaLaunchKernelExC_ptsz"}, {432, "cudaOccupancyMaxPotentialClusterSize"},
    {433, "cudaOccupancyMaxActiveClusters"}, {434, "cudaCreateTextureObject_v2"},
    {435, "cudaGetTextureObjectTextureDesc_v2"}, {436, "cudaGraphInstantiateWithParams"},
    {437, "cudaGraphInstantiateWithParams_ptsz"}, {438, "cudaGraphExecGetFlags"}, {439, "cudaGetKernel"},
    {440, "cudaGetDeviceProperties"}, {441, "cudaStreamGetId"}, {442, "cudaStreamGetId_ptsz"},
    {443, "cudaGraphInstantiate"}, {444, "cudaInitDevice"}, {445, "cudaGraphAddNode"},
    {446, "cudaGraphNodeSetParams"}, {447, "cudaGraphExecNodeSetParams"}, {448, "cudaMemAdvise"},
    {449, "cudaMemPrefetchAsync"}, {450, "cudaMemPrefetchAsync_ptsz"}, {451, "cudaFuncGetName"},
    {452, "cudaStreamBeginCaptureToGraph"}, {453, "cudaStreamBeginCaptureToGraph_ptsz"},
    {454, "cudaGraphConditionalHandleCreate"}, {455, "cudaGraphGetEdges"}, {456, "cudaGraphNodeGetDependencies"},
    {457, "cudaGraphNodeGetDependentNodes"}, {458, "cudaGraphAddDependencies"}, {459, "cudaGraphRemoveDependencies"},
    {460, "cudaGraphAddNode"}, {461, "cudaStreamGetCaptureInfo"}, {462, "cudaStreamGetCaptureInfo_ptsz"},
    {463, "cudaStreamUpdateCaptureDependencies"}, {464, "cudaStreamUpdateCaptureDependencies_ptsz"},
    {465, "cudaDeviceRegisterAsyncNotification"}, {466, "cudaDeviceUnregisterAsyncNotification"},
    {467, "cudaFuncGetParamInfo"}, {468, "cudaGetDriverEntryPointByVersion"},
    {469, "cudaGetDriverEntryPointByVersion_ptsz"}, {470, "cudaLibraryLoadData"}, {471, "cudaLibraryLoadFromFile"},
    {472, "cudaLibraryUnload"}, {473, "cudaLibraryGetKernel"}, {474, "cudaLibraryGetGlobal"},
    {475, "cudaLibraryGetManaged"}, {476, "cudaLibraryGetUnifiedFunction"}, {477, "cudaLibraryGetKernelCount"},
    {478, "cudaLibraryEnumerateKernels"}, {479, "cudaKernelSetAttributeForDevice"}, {480, "cudaStreamGetDevice"},
    {481, "cudaStreamGetDevice_ptsz"}, {482, "cudaMemcpyBatchAsync"}, {483, "cudaMemcpyBatchAsync_ptsz"},
    {484, "cudaMemcpy3DBatchAsync"}, {485, "cudaMemcpy3DBatchAsync_ptsz"}, {486, "cudaEventElapsedTime"},
    {487, "cudaMemPrefetchBatchAsync"}, {488, "cudaMemPrefetchBatchAsync_ptsz"}, {489, "cudaMemDiscardBatchAsync"},
    {490, "cudaMemDiscardBatchAsync_ptsz"}, {491, "cudaMemDiscardAndPrefetchBatchAsync"},
    {492, "cudaMemDiscardAndPrefetchBatchAsync_ptsz"}, {493, "cudaGetExportTable"}, {509, "cudaMemcpyBatchAsync"},
    {510, "cudaMemcpyBatchAsync_ptsz"}, {511, "cudaMemcpy3DBatchAsync"}, {512, "cudaMemcpy3DBatchAsync_ptsz"},
    {513, "cudaLogsRegisterCallback"}, {514, "cudaLogsUnregisterCallback"}, {515, "cudaLogsCurrent"},
    {516, "cudaLogsDumpToFile"}, {517, "cudaLogsDumpToMemory"}, {518, "cudaMemGetDefaultMemPool"},
    {519, "cudaMemGetMemPool"}, {520, "cudaMemSetMemPool"}, {521, "cudaDeviceGetHostAtomicCapabilities"},
    {522, "cudaDeviceGetP2PAtomicCapabilities"},
};

// CUpti_driver_api_trace_cbid, likewise: the functions that launch, copy, set and wait, those of a first use, and those
// that Kineto writes.
constexpr Name kDriver[] = {
    {1, "cuInit"}, {10, "cuCtxCreate"}, {17, "cuCtxSynchronize"}, {18, "cuModuleLoad"}, {19, "cuModuleLoadData"},
    {20, "cuModuleLoadDataEx"}, {21, "cuModuleLoadFatBinary"}, {43, "cuMemcpyHtoD"}, {44, "cu64MemcpyHtoD"},
    {45, "cuMemcpyDtoH"}, {46, "cu64MemcpyDtoH"}, {47, "cuMemcpyDtoD"}, {48, "cu64MemcpyDtoD"}, {49, "cuMemcpyDtoA"},
    {50, "cu64MemcpyDtoA"}, {51, "cuMemcpyAtoD"}, {52, "cu64MemcpyAtoD"}, {53, "cuMemcpyHtoA"}, {54, "cuMemcpyAtoH"},
    {55, "cuMemcpyAtoA"}, {56, "cuMemcpy2D"}, {57, "cuMemcpy2DUnaligned"}, {58, "cuMemcpy3D"}, {59, "cu64Memcpy3D"},
    {60, "cuMemcpyHtoDAsync"}, {61, "cu64MemcpyHtoDAsync"}, {62, "cuMemcpyDtoHAsync"}, {63, "cu64MemcpyDtoHAsync"},
    {64, "cuMemcpyDtoDAsync"}, {65, "cu64MemcpyDtoDAsync"}, {66, "cuMemcpyHtoAAsync"}, {67, "cuMemcpyAtoHAsync"},
    {68, "cuMemcpy2DAsync"}, {69, "cuMemcpy3DAsync"}, {70, "cu64Memcpy3DAsync"}, {71, "cuMemsetD8"},
    {72, "cu64MemsetD8"}, {73, "cuMemsetD16"}, {74, "cu64MemsetD16"}, {75, "cuMemsetD32"}, {76, "cu64MemsetD32"},
    {77, "cuMemsetD2D8"}, {78, "cu64MemsetD2D8"}, {79, "cuMemsetD2D16"}, {80, "cu64MemsetD2D16"}, {81, "cuMemsetD2D32"},
    {82, "cu64MemsetD2D32"}, {115, "cuLaunch"}, {116, "cuLaunchGrid"}, {117, "cuLaunchGridAsync"},
    {119, "cuEventRecord"}, {121, "cuEventSynchronize"}, {126, "cuStreamSynchronize"}, {216, "cuMemsetD8Async"},
    {217, "cu64MemsetD8Async"}, {218, "cuMemsetD16Async"}, {219, "cu64MemsetD16Async"}, {220, "cuMemsetD32Async"},
    {221, "cu64MemsetD32Async"}, {222, "cuMemsetD2D8Async"}, {223, "cu64MemsetD2D8Async"}, {224, "cuMemsetD2D16Async"},
    {225, "cu64MemsetD2D16Async"}, {226, "cuMemsetD2D32Async"}, {227, "cu64MemsetD2D32Async"}, {232, "cu64Memcpy2D"},
    {233, "cu64Memcpy2DUnaligned"}, {234, "cu64Memcpy2DAsync"}, {235, "cuCtxCreate_v2"}, {248, "cuMemcpy_v2"},
    {249, "cuMemsetD8_v2"}, {250, "cuMemsetD16_v2"}, {251, "cuMemsetD32_v2"}, {252, "cuMemsetD2D8_v2"},
    {253, "cuMemsetD2D16_v2"}, {254, "cuMemsetD2D32_v2"}, {276, "cuMemcpyHtoD_v2"}, {277, "cuMemcpyHtoDAsync_v2"},
    {278, "cuMemcpyDtoH_v2"}, {279, "cuMemcpyDtoHAsync_v2"}, {280, "cuMemcpyDtoD_v2"}, {281, "cuMemcpyDtoDAsync_v2"},
    {282, "cuMemcpyAtoH_v2"}, {283, "cuMemcpyAtoHAsync_v2"}, {284, "cuMemcpyAtoD_v2"}, {285, "cuMemcpyDtoA_v2"},
    {286, "cuMemcpyAtoA_v2"}, {287, "cuMemcpy2D_v2"}, {288, "cuMemcpy2DUnaligned_v2"}, {289, "cuMemcpy2DAsync_v2"},
    {290, "cuMemcpy3D_v2"}, {291, "cuMemcpy3DAsync_v2"}, {292, "cuMemcpyHtoA_v2"}, {293, "cuMemcpyHtoAAsync_v2"},
    {295, "cuStreamWaitEvent"}, {305, "cuMemcpy"}, {306, "cuMemcpyAsync"}, {307, "cuLaunchKernel"},
    {318, "cuMemcpyPeer"}, {319, "cuMemcpyPeerAsync"}, {320, "cuMemcpy3DPeer"}, {321, "cuMemcpy3DPeerAsync"},
    {365, "cuLinkComplete"}, {386, "cuDevicePrimaryCtxRetain"}, {397, "cuMemcpyHtoD_v2_ptds"},
    {398, "cuMemcpyDtoH_v2_ptds"}, {399, "cuMemcpyDtoD_v2_ptds"}, {400, "cuMemcpyDtoA_v2_ptds"},
    {401, "cuMemcpyAtoD_v2_ptds"}, {402, "cuMemcpyHtoA_v2_ptds"}, {403, "cuMemcpyAtoH_v2_ptds"},
    {404, "cuMemcpyAtoA_v2_ptds"}, {405, "cuMemcpy2D_v2_ptds"}, {406, "cuMemcpy2DUnaligned_v2_ptds"},
    {407, "cuMemcpy3D_v2_ptds"}, {408, "cuMemcpy_ptds"}, {409, "cuMemcpyPeer_ptds"}, {410, "cuMemcpy3DPeer_ptds"},
    {411, "cuMemsetD8_v2_ptds"}, {412, "cuMemsetD16_v2_ptds"}, {413, "cuMemsetD32_v2_ptds"},
    {414, "cuMemsetD2D8_v2_ptds"}, {415, "cuMemsetD2D16_v2_ptds"}, {416, "cuMemsetD2D32_v2_ptds"},
    {418, "cuMemcpyAsync_ptsz"}, {419, "cuMemcpyHtoAAsync_v2_ptsz"}, {420, "cuMemcpyAtoHAsync_v2_ptsz"},
    {421, "cuMemcpyHtoDAsync_v2_ptsz"}, {422, "cuMemcpyDtoHAsync_v2_ptsz"}, {423, "cuMemcpyDtoDAsync_v2_ptsz"},
    {424, "cuMemcpy2DAsync_v2_ptsz"}, {425, "cuMemcpy3DAsync_v2_ptsz"}, {426, "cuMemcpyPeerAsync_ptsz"},
    {427, "cuMemcpy3DPeerAsync_ptsz"}, {428, "cuMemsetD8Async_ptsz"}, {429, "cuMemsetD16Async_ptsz"},
    {430, "cuMemsetD32Async_ptsz"}, {431, "cuMemsetD2D8Async_ptsz"}, {432, "cuMemsetD2D16Async_ptsz"},
    {433, "cuMemsetD2D32Async_ptsz"}, {436, "cuStreamWaitEvent_ptsz"}, {440, "cuStreamSynchronize_ptsz"},
    {441, "cuEventRecord_ptsz"}, {442, "cuLaunchKernel_ptsz"}, {477, "cuLaunchCooperativeKernel"},
    {478, "cuLaunchCooperativeKernel_ptsz"}, {480, "cuLaunchCooperativeKernelMultiDevice"},
    {504, "cuGraphAddMemcpyNode"}, {505, "cuGraphMemcpyNodeGetParams"}, {506, "cuGraphAddMemsetNode"},
    {507, "cuGraphMemsetNodeGetParams"}, {508, "cuGraphMemsetNodeSetParams"}, {514, "cuGraphLaunch"},
    {515, "cuGraphLaunch_ptsz"}, {520, "cuGraphMemcpyNodeSetParams"}, {527, "cuLaunchHostFunc"},
    {528, "cuLaunchHostFunc_ptsz"}, {549, "cuMemCreate"}, {550, "cuMemRelease"}, {551, "cuMemMap"}, {552, "cuMemUnmap"},
    {554, "cuMemExportToShareableHandle"}, {555, "cuMemImportFromShareableHandle"},
    {562, "cuGraphExecMemcpyNodeSetParams"}, {563, "cuGraphExecMemsetNodeSetParams"}, {584, "cuMemMapArrayAsync"},
    {585, "cuMemMapArrayAsync_ptsz"}, {587, "cuEventRecordWithFlags"}, {588, "cuEventRecordWithFlags_ptsz"},
    {589, "cuGraphAddEventRecordNode"}, {591, "cuGraphEventRecordNodeGetEvent"},
    {593, "cuGraphEventRecordNodeSetEvent"}, {595, "cuGraphExecEventRecordNodeSetEvent"}, {645, "cuCtxCreate_v3"},
    {652, "cuLaunchKernelEx"}, {653, "cuLaunchKernelEx_ptsz"}, {678, "cuLibraryLoadData"},
    {679, "cuLibraryLoadFromFile"}, {750, "cuGreenCtxWaitEvent"}, {756, "cuCtxWaitEvent"}, {757, "cuCtxCreate_v4"},
    {776, "cuMemcpyBatchAsync"}, {777, "cuMemcpyBatchAsync_ptsz"}, {778, "cuMemcpy3DBatchAsync"},
    {779, "cuMemcpy3DBatchAsync_ptsz"}, {796, "cuMemcpyBatchAsync_v2"}, {797, "cuMemcpyBatchAsync_v2_ptsz"},
    {798, "cuMemcpy3DBatchAsync_v2"}, {799, "cuMemcpy3DBatchAsync_v2_ptsz"}, {800, "cuCtxSynchronize_v2"},
};
// clang-format on

// Functions that Kineto leaves out because they are called often and say little (CuptiCbidRegistry.cpp):
// cudaGetLastError, cudaSetDevice, cudaGetDevice, cudaEventCreate, cudaEventCreateWithFlags, cudaEventDestroy.
constexpr std::array<uint16_t, 6> kBlocked = {10, 16, 17, 133, 134, 136};
// Functions of the driver that Kineto writes: cuLaunchKernel, cuLaunchKernelEx, cuMemCreate, cuMemMap, cuMemUnmap,
// cuMemRelease, cuMemExportToShareableHandle and cuMemImportFromShareableHandle.
constexpr std::array<uint16_t, 8> kKept = {307, 549, 550, 551, 552, 554, 555, 652};

// In torch's first call of CUDA, whichever it is, the context is made. These are the likely ones: cudaGetDeviceCount,
// cudaDeviceGetStreamPriorityRange, cudaInitDevice; cuInit, cuCtxCreate and its later versions,
// cuDevicePrimaryCtxRetain.
constexpr std::array<uint16_t, 3> kInitialisingRuntime = {3, 205, 444};
constexpr std::array<uint16_t, 6> kInitialisingDriver = {1, 10, 235, 386, 645, 757};
// cudaFuncGetAttributes, cudaLibraryLoadData, cudaLibraryLoadFromFile; cuModuleLoad, cuModuleLoadData,
// cuModuleLoadDataEx, cuModuleLoadFatBinary, cuLinkComplete, cuLibraryLoadData, cuLibraryLoadFromFile.
constexpr std::array<uint16_t, 3> kLoadingRuntime = {15, 470, 471};
constexpr std::array<uint16_t, 7> kLoadingDriver = {18, 19, 20, 21, 365, 678, 679};

std::string_view find(std::span<const Name> names, uint16_t cbid) {
  const auto it =
      std::lower_bound(names.begin(), names.end(), cbid, [](const Name& n, uint16_t id) { return n.cbid < id; });
  return it != names.end() && it->cbid == cbid ? it->name : std::string_view{};
}

}  // namespace

std::string cuda_api_name(GpuApiKind api, uint16_t cbid) {
  const bool is_driver = api == GpuApiKind::kDriver;
  const std::string_view name = is_driver ? find(kDriver, cbid) : find(kRuntime, cbid);
  if (!name.empty()) return std::string(name);
  return (is_driver ? "CUDA driver call " : "CUDA runtime call ") + std::to_string(cbid);
}

CallEffect call_effect(std::string_view name) {
  constexpr std::array<std::string_view, 10> kWaits = {
      "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
      "cuCtxSynchronize",      "cuEventSynchronize",    "hipStreamSynchronize", "hipDeviceSynchronize",
      "hipEventSynchronize",   "cudaMemcpy2D_"};
  constexpr std::array<std::string_view, 12> kAllocates = {
      "cudaMalloc", "cudaFree",    "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister", "cuMemAlloc",
      "cuMemFree",  "cuMemCreate", "cuMemMap",      "cuMemUnmap",       "hipMalloc",          "hipFree"};
  constexpr std::array<std::string_view, 7> kLaunches = {
      "Launch",   "MemcpyAsync", "MemsetAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
      "cuMemsetD"};
  const auto begins = [name](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::ranges::any_of(kWaits, begins) || name == "cudaMemcpy" || name == "cuMemcpyDtoH_v2" || name == "hipMemcpy")
    return CallEffect::kWaits;
  if (std::ranges::any_of(kAllocates, begins)) return CallEffect::kAllocates;
  if (std::ranges::any_of(kLaunches, [name](std::string_view part) { return name.find(part) != name.npos; }))
    return CallEffect::kLaunches;
  return CallEffect::kOther;
}

std::string_view effect_text(CallEffect effect) {
  constexpr std::array<std::string_view, 4> kTexts = {"other", "launch", "wait", "allocate"};
  return kTexts[static_cast<size_t>(effect)];
}

FirstUse first_use(GpuApiKind api, uint16_t cbid) {
  const auto is_in = [cbid](const auto& list) { return std::ranges::find(list, cbid) != list.end(); };
  const bool is_driver = api == GpuApiKind::kDriver;
  if (is_driver ? is_in(kInitialisingDriver) : is_in(kInitialisingRuntime)) return FirstUse::kInitialises;
  if (is_driver ? is_in(kLoadingDriver) : is_in(kLoadingRuntime)) return FirstUse::kLoads;
  return FirstUse::kNone;
}

bool is_written(GpuApiKind api, uint16_t cbid, bool has_activity) {
  if (first_use(api, cbid) != FirstUse::kNone) return true;
  if (api == GpuApiKind::kDriver) return has_activity || std::ranges::find(kKept, cbid) != kKept.end();
  return has_activity || std::ranges::find(kBlocked, cbid) == kBlocked.end();
}

}  // namespace torchprof::formats
