// Every algorithm that cuBLASLt proposes for one product in bf16, for `products_lt.py`.
//   nvcc -O2 -shared -Xcompiler -fPIC -o libproducts.so cublaslt.cu -lcublasLt
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cstdint>

struct Product {
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulHeuristicResult_t found[64];
  int count;
};

static cublasLtHandle_t handle = nullptr;
static void *workspace = nullptr;
static const size_t kWorkspace = 64 << 20;

// C (m x n) = op(A) op(B), column-major as cuBLAS has it; at most `wanted` algorithms.
extern "C" Product *find(int ta, int tb, int64_t m, int64_t n, int64_t k, int wanted) {
  if (!handle) {
    if (cublasLtCreate(&handle) || cudaMalloc(&workspace, kWorkspace)) return nullptr;
  }
  Product *p = new Product();
  cublasOperation_t a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
  cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
  cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, ta ? k : m, ta ? m : k, ta ? k : m);
  cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, tb ? n : k, tb ? k : n, tb ? n : k);
  cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, m, n, m);
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                       sizeof kWorkspace);
  cublasLtMatmulAlgoGetHeuristic(handle, p->description, p->a, p->b, p->c, p->c, preference, wanted < 64 ? wanted : 64,
                                 p->found, &p->count);
  return p;
}

extern "C" int count(Product *p) { return p->count; }

// Tile, stages and cluster of an algorithm, as numbers of cublasLt.h; -1 where it has none.
extern "C" void describe(Product *p, int i, int *out) {
  cublasLtMatmulAlgoConfigAttributes_t wanted[] = {CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                                   CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID};
  for (int j = 0; j < 3; j++) {
    uint32_t value = 0;
    uint16_t shape = 0;
    size_t written = 0;
    void *at = j == 2 ? (void *)&shape : (void *)&value;
    size_t size = j == 2 ? sizeof shape : sizeof value;
    int status = cublasLtMatmulAlgoConfigGetAttribute(&p->found[i].algo, wanted[j], at, size, &written);
    out[j] = status ? -1 : j == 2 ? shape : (int)value;
  }
}

extern "C" int multiply(Product *p, int i, void *a, void *b, void *c, void *stream, int times) {
  float one = 1, zero = 0;
  for (int t = 0; t < times; t++) {
    int status = cublasLtMatmul(handle, p->description, &one, a, p->a, b, p->b, &zero, c, p->c, c, p->c,
                                &p->found[i].algo, workspace, kWorkspace, (cudaStream_t)stream);
    if (status) return status;
  }
  return 0;
}
